"""The policy: who may do what, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from triplepoint.errors import AgentError, ToolError
from triplepoint.tools import EditTools, PermissionRequest, Policy, Rule, Tool, tool
from triplepoint.tools.policy import scope_of, unmatched_rules
from triplepoint.tools.schema_tool import SchemaTool


@tool(effect="write", preview=lambda path, content="": f"+{content}")
def write(path: str, content: str = "") -> str:
    """Write."""
    return path


@tool
def read(path: str = ".") -> str:
    """Read."""
    return path


@tool(effect="exec")
def run(command: list[str]) -> str:
    """Run."""
    return command[0]


@tool(effect="net")
def fetch(url: str) -> str:
    """Fetch."""
    return url


def decided(policy: Policy, one: Tool[..., Any], **arguments: Any) -> tuple[bool, str]:
    decision = policy.decide(one, one.validate(arguments))
    assert bool(decision.reason) is not decision.allowed
    return decision.allowed, decision.by


def test_by_default_only_reading_is_allowed() -> None:
    """Without a word from anyone, a tool that does more is denied."""
    policy = Policy()

    assert decided(policy, read) == (True, "effect")
    for one, arguments in (
        (write, {"path": "a"}),
        (run, {"command": ["a"]}),
        (fetch, {"url": "a"}),
    ):
        assert decided(policy, one, **arguments) == (False, "read-only")
    assert policy.refused([read, write, run, fetch]) == ["write", "run", "fetch"]


def test_yes_allows_what_no_rule_denies() -> None:
    """The mode speaks last."""
    policy = Policy("yes", [Rule("write", "deny", {"path": "secret/**"})])

    assert decided(policy, write, path="a") == (True, "yes")
    assert decided(policy, write, path="secret/a") == (False, "rule 1")
    assert policy.refused([read, write, run, fetch]) == []


def test_the_first_rule_that_fits_decides() -> None:
    """Rules may allow, deny and ask, in their order, also for tools that only read."""
    rules = [
        Rule("write", "deny", {"path": "docs/private/**"}),
        Rule("w*", "allow", {"path": "docs/**"}),
        Rule("read", "deny", {"path": ".env"}),
        Rule("run", "allow", {"command": "git status"}),
    ]
    policy = Policy("read-only", rules)

    assert decided(policy, write, path="docs/a.md") == (True, "rule 2")
    assert decided(policy, write, path="docs/private/a") == (False, "rule 1")
    assert decided(policy, write, path="src/a") == (False, "read-only")
    assert decided(policy, read, path=".env") == (False, "rule 3")
    assert decided(policy, read) == (True, "effect")
    assert decided(policy, run, command=["git", "status"]) == (True, "rule 4")
    assert decided(policy, run, command=["git", "status", "x"]) == (False, "read-only")
    assert decided(policy, run, command=["git status"]) == (False, "read-only")


@pytest.mark.parametrize("path", ["./.env", ".//.env", "a/../.env", ".env/", "x/./../.env"])
def test_another_way_to_write_a_path_gets_around_nothing(path: str) -> None:
    """A detour is denied where the straight way is, and is not allowed where it leaves."""
    denies = Policy("yes", [Rule("*", "deny", {"path": ".env"})])
    allows = Policy("read-only", [Rule("*", "allow", {"path": "a/**"})])

    assert decided(denies, write, path=path) == (False, "rule 1")
    assert not decided(allows, write, path=path)[0]
    assert decided(allows, write, path="./a//b")[0]


@pytest.mark.parametrize(
    "path",
    [
        "src/%2e%2e/a/x://b",
        "a\t/x://b",
        "A/x://b",
        "b/a/x://b",
        "http://a/b",
        "a%2fb",
    ],
)
def test_a_path_is_no_address(path: str) -> None:
    """What a URL would be read as, the tools take as names of files."""
    allows = Policy("read-only", [Rule("*", "allow", {"path": "a/**"})])
    denies = Policy("yes", [Rule("*", "deny", {"path": "secret/**"})])

    assert not decided(allows, write, path=path)[0]
    assert decided(allows, write, path="a/x://b%2e")[0]
    for kept in ("./secret/%2e%2e/z://e", "secret/x://y", "secret/../secret/a"):
        assert not decided(denies, write, path=kept)[0]


@pytest.mark.parametrize(
    "path", ["./secret/a\nb", "secret//a\n", "secret", "./secret/", ".//secret"]
)
def test_a_folder_is_kept_however_it_is_written(path: str) -> None:
    """A line end in a name hides nothing, and the folder itself is kept with all that is in it."""
    policy = Policy("yes", [Rule("*", "deny", {"path": "secret/**"})])

    assert decided(policy, write, path=path) == (False, "rule 1")
    assert decided(policy, read, path=path) == (False, "rule 1")


def test_what_holds_a_denied_path_is_not_changed() -> None:
    """A folder above what is denied is not moved or deleted: that would take the rule from it."""
    policy = Policy(
        "yes", [Rule("*", "deny", {"path": "a/b/key"}), Rule("*", "deny", {"path": "**/x/**"})]
    )

    for path in ("a", "a/b", "./a/b/", "d/x", "x"):
        assert not decided(policy, write, path=path)[0], path
    for path in ("b", "a/c", "a/bc", "d", "a/b/key2"):
        assert decided(policy, write, path=path)[0], path
    assert decided(policy, read, path="a")[0]
    assert decided(policy, read, path="a/b")[0]


@pytest.mark.parametrize(
    ("glob", "kept"),
    [("**/.env", "app/prod/.env"), ("**/keys/**", "app/keys/a"), ("app/*/.env", "app/prod/.env")],
)
def test_what_a_rule_keeps_does_not_go_with_its_folder(
    tmp_path: Path, glob: str, kept: str
) -> None:
    """A glob over any folder holds for all that lies in one which is moved or deleted: a file, an
    empty folder, a symlink. A folder without any of it may go."""
    (tmp_path / kept).parent.mkdir(parents=True)
    (tmp_path / kept).symlink_to("elsewhere")
    (tmp_path / "other/sub").mkdir(parents=True)
    (tmp_path / "other/file").touch()
    _, _, move, delete = EditTools(tmp_path)

    for action in ("deny", "ask"):
        policy = Policy("yes", [Rule("*", action, {"path": glob})])
        assert not decided(policy, delete, path="app")[0]
        assert not decided(policy, move, path="app", to="new")[0]
        assert decided(policy, move, path="other", to="new")[0]
        assert decided(policy, delete, path="other/file")[0]
        assert decided(policy, delete, path="nothing")[0]  # the call will say so
    empty = Policy("yes", [Rule("*", "deny", {"path": "**/sub"})])
    assert not decided(empty, delete, path="other")[0]


def test_nothing_gets_to_where_a_rule_holds_within_a_folder(tmp_path: Path) -> None:
    """Where a move leads counts for each file in the folder."""
    (tmp_path / "a/sub").mkdir(parents=True)
    (tmp_path / "a/sub/x.conf").touch()
    policy = Policy("yes", [Rule("move", "deny", {"path": "etc/sub/*.conf"})])
    _, _, move, _ = EditTools(tmp_path)

    assert decided(policy, move, path="a", to="etc") == (False, "rule 1")
    assert decided(policy, move, path="a", to="etc2") == (True, "yes")


def test_a_folder_too_large_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused where a rule asks for it, and says what to do; without one it may go."""
    monkeypatch.setattr("triplepoint.tools.edit.MAX_IN_FOLDER", 3)
    for number in range(4):
        (tmp_path / f"a/{number}").mkdir(parents=True)
    *_, delete = EditTools(tmp_path)

    with pytest.raises(ToolError, match=r"a holds more than 3 files.*the folders in it"):
        decided(Policy("yes", [Rule("*", "deny", {"path": "**/x"})]), delete, path="a")
    assert decided(Policy("yes", [Rule("*", "deny", {"path": "b/*"})]), delete, path="a/1")[0]
    assert decided(Policy("yes"), delete, path="a")[0]


def test_a_rule_about_folders_is_not_about_files_beside_them() -> None:
    """`*/**` is what lies in folders: a name at the top may be a file."""
    policy = Policy("yes", [Rule("*", "deny", {"path": "*/**"})])

    assert decided(policy, write, path="readme")[0]
    assert not decided(policy, write, path="docs/readme")[0]


def test_two_slashes_are_one() -> None:
    """//etc is /etc, for tools of other programs that take absolute paths."""
    policy = Policy("yes", [Rule("*", "deny", {"path": "/etc/**"})])

    assert not decided(policy, write, path="//etc/passwd")[0]
    assert decided(policy, write, path="//tmp/x")[0]


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/x",
        "https://evil.com:443/x",
        "https://evil.com:/x",
        "https://evil.com./x",
        "https://@evil.com/x",
        "https://evil。com/x",
        "https://EVIL.com/x",
        "https://evil.com/%78",
    ],
)
def test_another_way_to_write_an_address_gets_around_nothing(url: str) -> None:
    """What leads to the same host and page is denied with it."""
    host = Policy("yes", [Rule("*", "deny", {"url": "https://evil.com/**"})])
    page = Policy("yes", [Rule("*", "deny", {"url": "https://evil.com/x"})])
    assert not decided(host, fetch, url=url)[0]
    assert not decided(page, fetch, url=url)[0]
    other = Policy("yes", [Rule("*", "deny", {"url": "https://evil.com:8080/**"})])
    assert decided(other, fetch, url=url)[0]


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://docs.python.org/3/library", True),
        ("HTTPS://DOCS.python.ORG/3/library", True),
        ("https://docs.python.org/3/../../etc", False),
        ("https://docs.python.org/3/%2e%2E/%2e./etc", False),
        ("https://docs.python.org.evil.com/3/x", False),
        ("https://docs.python.org@evil.com/3/x", False),
        ("https://[x", False),
    ],
)
def test_a_rule_about_addresses(url: str, allowed: bool) -> None:
    """A glob over a URL holds for that host and folder, however it is written."""
    policy = Policy("read-only", [Rule("fetch", "allow", {"url": "https://docs.python.org/3/**"})])

    assert decided(policy, fetch, url=url)[0] is allowed


def test_a_rule_about_paths_is_about_both_ends_of_a_move() -> None:
    """Nothing is moved into what is denied, and what is allowed does not lead out of it."""

    @tool(effect="write")
    def move(path: str, to: str) -> str:
        """Move."""
        return f"{path} {to}"

    denies = Policy("yes", [Rule("*", "deny", {"path": "secret/**"})])
    allows = Policy("read-only", [Rule("move", "allow", {"path": "docs/**"})])

    assert decided(denies, move, path="a", to="secret/a") == (False, "rule 1")
    assert decided(denies, move, path="secret/a", to="a") == (False, "rule 1")
    assert decided(denies, move, path="a", to="b") == (True, "yes")
    assert decided(allows, move, path="docs/a", to="docs/b") == (True, "rule 1")
    assert decided(allows, move, path="docs/a", to="docs/../b") == (False, "read-only")
    answers: list[Any] = ["always", "no"]
    asks = Policy("ask", ask=lambda _: answers.pop(0))
    assert decided(asks, move, path="a", to="b") == (True, "user")
    assert decided(asks, move, path="./a", to="b") == (True, "always")
    assert decided(asks, move, path="a", to="c") == (False, "user")


def test_a_default_counts_as_given() -> None:
    """A rule about an argument that was left out is about what it is then."""
    policy = Policy("read-only", [Rule("read", "deny", {"path": "."})])

    assert decided(policy, read) == (False, "rule 1")


def test_a_person_is_asked_once_for_what_is_always() -> None:
    """Always holds for this tool and path; what a person is shown is the preview."""
    asked: list[PermissionRequest] = []
    answers: list[Any] = ["no", "always", "yes"]

    def ask(request: PermissionRequest) -> Any:
        asked.append(request)
        return answers.pop(0)

    policy = Policy("ask", ask=ask)

    assert decided(policy, read) == (True, "effect")
    assert decided(policy, write, path="a", content="x") == (False, "user")
    assert decided(policy, write, path="a", content="y") == (True, "user")
    assert decided(policy, write, path="./a", content="z") == (True, "always")
    assert decided(policy, write, path="b") == (True, "user")
    assert [request.preview for request in asked] == ["+x", "+y", "+"]
    assert [request.scope for request in asked] == ["a", "a", "b"]


def test_always_is_for_all_that_a_tool_of_others_is_told() -> None:
    """Beside a path it may take a query: one is not another."""
    schema = {"type": "object", "properties": {"path": {}, "sql": {}}}
    query = SchemaTool("query", "Ask.", schema, "write", lambda _: "done")
    policy = Policy("ask", ask=lambda request: "always" if "select" in request.scope else "no")

    assert decided(policy, query, path="a.db", sql="select 1") == (True, "user")
    assert decided(policy, query, path="a.db", sql="select 1") == (True, "always")
    assert decided(policy, query, path="a.db", sql="drop table users") == (False, "user")


def test_always_is_for_all_that_a_call_names() -> None:
    """A command that was allowed in a folder is not any command there, nor a page any file."""
    assert scope_of({"path": "./a", "text": "x"}) == "a"
    assert scope_of({"url": "https://x.org/a", "method": "GET"}) == "https://x.org"
    assert scope_of({"path": "a", "to": "b"}) == "a → b"
    assert scope_of({"to": "b"}) == '{"to": "b"}'
    ls, rm = ({"path": ".", "command": command} for command in ("ls", "rm -r x"))
    assert scope_of(ls) == '{"path": ".", "command": "ls"}'
    assert scope_of(ls) != scope_of(rm)
    page = {"url": "https://x.org/a"}
    assert len({scope_of(page), *(scope_of(page | {"path": p}) for p in "ab")}) == 3
    assert scope_of(page | {"to": "a"}) != scope_of(page | {"to": "b"})


@pytest.mark.parametrize("answer", [True, None, "YES", 1])
def test_who_asks_a_person_gives_one_of_the_answers(answer: object) -> None:
    """Anything else is no refusal by anybody, and no function is told at once."""
    policy = Policy("ask", ask=lambda _: cast(Any, answer))
    with pytest.raises(AgentError, match="must return one of yes, no, always, not "):
        decided(policy, write, path="a")
    with pytest.raises(ToolError, match="ask must be a function"):
        Policy("ask", ask=cast(Any, answer or "no"))


def test_nobody_to_ask_means_no() -> None:
    """Asking where no person is denies, and never waits."""
    policy = Policy("ask")

    assert decided(policy, write, path="a") == (False, "nobody")
    assert policy.refused([read, write]) == ["write"]


def test_a_policy_file(tmp_path: Path) -> None:
    """Rules are read from TOML."""
    file = tmp_path / "policy.toml"
    file.write_text(
        """
[[rule]]
tool = "write"
arguments = { path = "docs/**" }
action = "allow"

[[rule]]
tool = "*"
action = "deny"
"""
    )

    policy = Policy.load(file, "yes")

    assert decided(policy, write, path="docs/x") == (True, "rule 1")
    assert decided(policy, read) == (False, "rule 2")
    assert policy.describe() == {
        "mode": "yes",
        "rules": [
            {"tool": "write", "arguments": {"path": "docs/**"}, "action": "allow"},
            {"tool": "*", "arguments": {}, "action": "deny"},
        ],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]]\ntool = 1", "rule 1: it needs tool"),
        ('[[rule]]\ntool = "a"\naction = "maybe"', "rule 1: a rule says action = 'maybe'"),
        ('[[rule]]\ntool = "a"\nwhen = "x"\naction = "deny"', "'when' is not known"),
        ('[[rule]]\ntool = "["\naction = "deny"', "rule 1: the pattern has a"),
        ('[[rule]]\ntool = "a"\naction = "deny"\narguments = { path = 1 }', "a table of globs"),
        ('[rule]\ntool = "a"', "two brackets"),
        ("mode = 1", "only \\[\\[rule\\]\\] is known"),
        ("= 1", "is not TOML"),
        ("a = " + "[" * 5000, "is not TOML"),
    ],
)
def test_a_bad_policy_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """What cannot be understood is refused: a rule that is dropped would allow too much."""
    (tmp_path / "policy.toml").write_text(text)

    with pytest.raises(ToolError, match=message):
        Policy.load(tmp_path / "policy.toml")
    with pytest.raises(ToolError, match="cannot read the policy"):
        Policy.load(tmp_path / "missing.toml")
    with pytest.raises(ToolError, match="unknown policy"):
        Policy("maybe")  # pyright: ignore[reportArgumentType]


@dataclass
class Call:
    """A tool event, as far as it matters here."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    decision: str = ""


def test_recorded_decisions_are_made_again() -> None:
    """Each call gets the decision that it had, in order; a call that is new may only read."""
    policy = Policy.recorded(
        [
            Call("write", {"path": "a"}, "denied"),
            Call("write", {"path": "a"}, "allowed"),
            Call("read", {"path": "x"}, "denied"),
            Call("unknown", {}, ""),
        ]
    )

    assert decided(policy, write, path="a") == (False, "recorded")
    assert decided(policy, write, path="a") == (True, "recorded")
    assert decided(policy, write, path="a") == (True, "recorded")
    assert decided(policy, read, path="x") == (False, "recorded")
    assert decided(policy, read) == (True, "effect")
    assert decided(policy, write, path="b") == (False, "read-only")


@pytest.mark.parametrize(
    ("glob", "meant"), [("./secret/**", "secret/**"), ("secret/", "secret/**"), ("a/../b", "b")]
)
def test_a_glob_that_fits_no_path_is_refused(glob: str, meant: str) -> None:
    """A rule that denies nothing is told when it is made, with what was probably meant."""
    with pytest.raises(ToolError, match="fits no path") as refused:
        Rule("read_file", "deny", {"path": glob})
    assert str(refused.value).endswith(f"write '{meant}'")


def test_rules_that_fit_nothing_are_told() -> None:
    """A slip in a rule that denies would protect nothing, and nobody would know."""
    rules = [
        Rule("write", "deny", {"path": "secret/**"}),
        Rule("w*", "deny", {"pth": "secret/**"}),
        Rule("write_fil", "ask"),
        Rule("fetch", "allow", {"url": "https://a.example/**"}),
    ]
    rules.append(Rule("run_*", "deny"))
    assert list(unmatched_rules(rules, [write, read], others=["run_command"])) == [
        "rule 2 of the policy fits no call: w* has no argument pth, but content, path",
        "rule 3 of the policy fits no tool: there is no write_fil here",
    ]
