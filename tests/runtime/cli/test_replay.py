"""`triplepoint replay` without a model."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.traces import Trace

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Terminal = Callable[..., tuple[int, str]]
SMALL = Path(__file__).parents[2] / "data" / "qwen35-small.gguf"


def test_the_recorded_run_is_shown(triplepoint: Run, recorded: Path) -> None:
    """Question, call, short result, answer, table; control characters only as escapes."""
    done = triplepoint("replay", recorded)

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("run 20")
    assert lines[0].endswith(", nano, avx2, kv bf16")
    assert lines[1:5] == [
        "? What's the error in app.log?",
        '> read_file(path="a\\u001b[2J.log")',
        "  result of 2 lines, 32 characters: 1  ERROR disk full",
        "disk\\x1b[31m full",
    ]
    assert "streaming prefill" in done.stdout
    assert not re.search(r"[^\n\x20-\x7e→…µ]", done.stdout)


@pytest.mark.slow
def test_on_a_terminal_there_are_colors(on_terminal: Terminal, recorded: Path) -> None:
    """A terminal gets colors, one with NO_COLOR or TERM=dumb none, and the same text."""
    colors = re.compile(r"\x1b\[[0-9;]*m")
    shown = {
        name: on_terminal("replay", recorded, more=more)
        for name, more in {
            "color": {},
            "no_color": {"NO_COLOR": "1"},
            "dumb": {"TERM": "dumb"},
        }.items()
    }

    assert {status for status, _ in shown.values()} == {0}
    assert colors.search(shown["color"][1])
    assert "\x1b" not in shown["no_color"][1] + shown["dumb"][1]
    assert "\x1b" not in colors.sub("", shown["color"][1])
    plain = [[x.rstrip() for x in colors.sub("", s).splitlines()] for _, s in shown.values()]
    assert plain[0] == plain[1] == plain[2]


def test_json_holds_what_the_table_shows(triplepoint: Run, recorded: Path) -> None:
    """--json is one object with header, phases, tools and sums."""
    done = triplepoint("replay", recorded, "--json")

    found = json.loads(done.stdout)
    assert found["status"] == "answered"
    assert found["answer"] == "disk\x1b[31m full"
    assert found["run"]["model"]["name"] == "nano"
    assert [phase["regime"] for phase in found["phases"]] == ["streaming prefill"]
    assert found["tools"][0]["arguments"] == {"path": "a\x1b[2J.log"}
    assert found["totals"]["input_tokens"] == 3


def test_a_torn_trace_is_shown_and_told(triplepoint: Run, recorded: Path) -> None:
    """What a killed run left is shown, and that it is torn."""
    recorded.write_bytes(recorded.read_bytes()[:-20])

    done = triplepoint("replay", recorded)

    assert done.returncode == 0
    assert 'incomplete: the last line is cut off: {"v":2,"seq":5' in done.stdout


def test_two_runs_in_one_file_are_both_shown(triplepoint: Run, recorded: Path) -> None:
    """Each run of a file has its own header and table."""
    text = recorded.read_text()
    recorded.write_text(text + text.replace('"run":"2', '"run":"3'))

    done = triplepoint("replay", recorded)

    assert done.stdout.count("? What's the error") == 2
    assert "\nrun 30" in done.stdout


def test_a_bad_line_is_named(triplepoint: Run, recorded: Path) -> None:
    """A damaged trace is an error with its line, status 3."""
    lines = recorded.read_text().splitlines()
    recorded.write_text("\n".join([*lines[:2], "{", *lines[2:]]))

    done = triplepoint("replay", recorded)

    assert done.returncode == 3
    assert "run.jsonl, line 3: not JSON: {" in done.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("-m nano", "-m needs --verify, --benchmark or --from"),
        ("--dir .", "--dir needs --from or --live-tools"),
        ("--verify --dir .", "--dir needs --from or --live-tools"),
        ("--verify --tools edit", "--tools needs --from"),
        ("--from 1 --live-tools", "--live-tools needs --verify"),
        ("--machine x", "--machine needs --predict"),
    ],
)
def test_what_would_be_ignored_is_refused(triplepoint: Run, args: str, says: str) -> None:
    """Before the trace is looked at: status 2, and what the option needs."""
    done = triplepoint("replay", "none.jsonl", *args.split())
    assert done.returncode == 2
    assert says in done.stderr


# --- --benchmark and --predict


@pytest.mark.slow
def test_the_recorded_work_is_done_again(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """--benchmark lists every phase with both times, the regimes and the totals; so does --json."""
    trace = tmp_path / "t.jsonl"
    assert not triplepoint(
        "run", "Which files are here?", "--dir", folder, "--trace", trace
    ).returncode

    done = triplepoint(
        "replay", trace, "--benchmark", "--threads", "1", "--kv", "q8", "--context", 600
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "kv: bf16 → q8" in done.stdout
    for kind in ("1.1 prompt ", "1.1 tool call ", "1.2 tool result ", "1.2 answer "):
        assert re.search(rf"^{kind} .*×", done.stdout, re.MULTILINE), kind
    assert re.search(r"^decode: \d+ tokens, .* TPOT .* → ", done.stdout, re.MULTILINE)
    assert re.search(r"^regimes: \d of 4 phases changed$", done.stdout, re.MULTILINE)

    found = json.loads(
        triplepoint("replay", trace, "--benchmark", "--skip-tool-delays", "--json").stdout
    )
    recorded = Trace.load(trace).phases
    assert [p["tokens"] for p in found["phases"]] == [p.tokens for p in recorded]
    assert [p["recorded"]["wall_s"] for p in found["phases"]] == [p.wall_s for p in recorded]
    assert found["totals"]["now_s"] == sum(p["now"]["wall_s"] for p in found["phases"])
    assert found["settings"] == []


@pytest.mark.slow
def test_the_cost_model_answers_for_another_machine(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """--predict --machine with a trace of that machine; a file without limits is refused."""
    trace, elsewhere = tmp_path / "t.jsonl", tmp_path / "elsewhere.jsonl"
    assert not triplepoint(
        "run", "Which files are here?", "--dir", folder, "--trace", trace
    ).returncode
    elsewhere.write_text(re.sub(r'("profile":{"cpu":)"[^"]*"', r'\1"abacus"', trace.read_text()))

    done = triplepoint("replay", trace, "--benchmark", "--predict", "--machine", elsewhere)

    assert done.returncode == 0, done.stderr
    assert re.search(r"^machine.cpu: .* → abacus$", done.stdout, re.MULTILINE)
    assert re.search(r"^phase .* expected +ratio", done.stdout, re.MULTILINE)

    bad = triplepoint("replay", trace, "--predict", "--machine", folder / "notes.txt")
    assert bad.returncode == 3
    assert "not a JSON object" in bad.stderr


def test_a_run_that_is_nowhere_names_the_library(triplepoint: Run) -> None:
    """A word that is neither file, run nor name of the library."""
    done = triplepoint("replay", "nope")

    assert done.returncode == 3
    assert "no trace 'nope'" in done.stderr


@pytest.mark.slow
def test_live_tools_are_compared(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """--verify --tools live: the same, or the call whose result is another one, and status 1."""
    trace = tmp_path / "t.jsonl"
    question = "What is on line 2 of notes.txt?"
    assert not triplepoint("run", question, "--dir", folder, "--trace", trace).returncode

    same = triplepoint("replay", trace, "--verify", "--live-tools")
    (folder / "notes.txt").write_text("call the plumber\nbuy bread\n")
    other = triplepoint("replay", trace, "--verify", "--live-tools", "--json")

    assert same.returncode == 0, same.stderr
    assert "and 1 live tool results, all the same" in same.stdout
    assert other.returncode == 1
    run = json.loads(other.stdout)["runs"][0]
    assert "buy bread" in run["tool_difference"]["now"]
    assert "buy milk" in run["tool_difference"]["recorded"]


@pytest.mark.slow
def test_a_schedule_is_a_benchmark(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """`bench trace`: a row for each phase and three sums; JSON has every repetition."""
    trace = tmp_path / "t.jsonl"
    assert not triplepoint("run", "Which files?", "--dir", folder, "--trace", trace).returncode
    phases = Trace.load(trace).phases

    done = triplepoint("bench", "trace", trace, "-r", 2)
    rows = json.loads(triplepoint("bench", "trace", trace, "-r", 2, "--json").stdout)

    assert (done.returncode, done.stderr) == (0, "")
    table = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(table) == 2 + len(phases) + 3
    assert [row["n_tokens"] for row in rows[:-3]] == [p.tokens for p in phases]
    assert [row["kind"] for row in rows[-3:]] == ["prefill", "decode", "engine"]
    assert {len(row["samples_ns"]) for row in rows} == {2}


def test_a_trace_of_others_chooses_no_folder(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """Outside of the current folder it has to be said what is read."""
    trace, question = tmp_path / "t.jsonl", "What is on line 2 of notes.txt?"
    assert not triplepoint("run", question, "--dir", folder, "--trace", trace).returncode
    outside = str(tmp_path.parent)
    trace.write_text(trace.read_text().replace(str(folder), outside))
    for how in (("--from", "1"), ("--verify", "--live-tools")):
        refused = triplepoint("replay", trace, *how)
        assert refused.returncode == 2, refused.stderr
        assert f"look there with --dir {outside}" in refused.stderr
        assert triplepoint("replay", trace, *how, "--dir", folder).returncode == 0


def test_a_conversation_goes_on_from_a_step(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """--from with another question: it is answered, and its trace names parent and step."""
    trace, new = tmp_path / "t.jsonl", tmp_path / "new.jsonl"
    question = "What is on line 2 of notes.txt?"
    assert not triplepoint("run", question, "--dir", folder, "--trace", trace).returncode

    other = ("--question", "What is on line 1 of notes.txt?", "--trace", new)
    done = triplepoint("replay", trace, "--from", "1", *other)

    assert done.returncode == 0, done.stderr
    assert "call the plumber" in done.stdout
    header, parent = Trace.load(new).header, Trace.load(trace).header
    assert header is not None
    assert parent is not None
    assert (header.parent, header.parent_step) == (parent.run, "1.1")
    shown = triplepoint("trace", "show", new).stdout
    assert f"\ncontinues {parent.run}, from 1.1\n" in shown

    for bad in ("0", "1.2.3", "x"):
        assert triplepoint("replay", trace, "--from", bad).returncode == 2
    assert "turn 1 has the steps 1, 2" in triplepoint("replay", trace, "--from", "1.9").stderr
    nowhere = triplepoint("replay", trace, "--from", "1", "--trace", tmp_path / "no" / "t.jsonl")
    assert f"there is no folder {tmp_path / 'no'}" in nowhere.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "1", "--predict"], "--predict goes with --benchmark alone"),
        (["--verify", "--predict"], "--predict goes with --benchmark alone"),
        (["--question", "x"], "--question needs --from"),
        (["--trace", "new.jsonl"], "--trace needs --from"),
        (["--live-tools"], "--live-tools needs --verify"),
        (["--verify", "--skip-tool-delays"], "--skip-tool-delays needs --benchmark"),
        (["--speed", "2", "--benchmark"], "--speed shows the recording"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_is_ignored(
    triplepoint: Run, recorded: Path, options: list[str], message: str
) -> None:
    """An option that what was asked for has no use for is refused."""
    done = triplepoint("replay", recorded, *options)

    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_the_recorded_settings_hold_from_a_step_on(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """Sampling and the type of the answer are the recorded ones; tools may be others."""
    trace, new, schema = (tmp_path / name for name in ("t.jsonl", "new.jsonl", "schema.json"))
    schema.write_text('{"type": "object", "properties": {"line": {"type": "integer"}}}')
    asked = ("run", "What is on line 2 of notes.txt?", "--dir", folder, "--trace", trace)
    ran = triplepoint(*asked, "--temp", 0.5, "--seed", 9, "--schema", schema)  # too much for nano

    done = triplepoint("replay", trace, "--from", "1.2", "--trace", new)
    fetching = triplepoint("replay", trace, "--from", "1", "--tools", "net", "--trace", new)

    assert done.returncode == ran.returncode != 1
    assert "a bug" not in done.stderr + fetching.stderr
    first, second = (Trace.load(path).runs[0].header for path in (trace, new))
    assert first is not None
    assert second is not None
    same = {"sampling", "system", "output", "answer_forms", "max_tokens"}
    assert {k: second.config[k] for k in same} == {k: first.config[k] for k in same}
    assert "rendered again" not in done.stderr
    tools = Trace.load(new).runs[1].header
    assert tools is not None
    assert "fetch_url" in {tool["function"]["name"] for tool in tools.tools}


@pytest.mark.slow
@pytest.mark.parametrize("time", ['"NaN"', "1e300", "-1", '"Infinity"'])
@pytest.mark.parametrize(
    "command",
    [
        *(["trace", "show"], ["replay"], ["replay", "--speed", "max"]),
        *(["trace", "export", "--format", form] for form in ("perfetto", "otlp-json", "csv")),
    ],
    ids=" ".join,
)
def test_a_trace_with_impossible_times(
    triplepoint: Run, recorded: Path, time: str, command: list[str]
) -> None:
    """What a hostile or broken writer put there is shown, and is no bug of ours."""
    text = recorded.read_text().replace('"wall_s":0.01', f'"wall_s":{time}')
    assert f'"wall_s":{time}' in text
    recorded.write_text(text)
    done = triplepoint(*command, recorded)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "where"),
    [
        (2, "cut off in turn 1, in the prefill of the question: "),
        (3, "cut off in turn 1, in the decode that follows this prefill: "),
        (4, "cut off in turn 1, after what is shown here: "),
    ],
)
def test_a_killed_run_shows_what_there_is(
    triplepoint: Run, recorded: Path, kept: int, where: str
) -> None:
    """The question, what was done, and where it was cut off; no empty tables."""
    recorded.write_bytes(b"".join(recorded.read_bytes().splitlines(keepends=True)[:kept]))

    for command in (("trace", "show"), ("replay",), ("replay", "--speed", "max")):
        done = triplepoint(*command, recorded)
        assert (done.returncode, done.stderr) == (0, "")
        assert where in done.stdout
        assert "the run was killed, or is still running" in done.stdout
        assert "What's the error in app.log?" in done.stdout
        assert ("phase" in done.stdout) == (kept > 2)
    assert "cut off" in triplepoint("trace", "ls", recorded.parent).stdout


@pytest.mark.slow
def test_a_run_without_a_sampled_token_is_not_verified(triplepoint: Run, tmp_path: Path) -> None:
    """There was nothing to compare: it is not said to be the same."""
    recorded = tmp_path / "run.jsonl"
    assert triplepoint("run", "Hello", "-m", "nano", "--trace", recorded).returncode == 0
    lines = recorded.read_text().splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if '"event":"phase"' in line)
    recorded.write_text("".join(lines[: first + 1]))

    done = triplepoint("replay", recorded, "--verify")
    assert done.returncode == 1
    assert "not verified: the run has no sampled token to compare (1 phase)" in done.stdout
    told = json.loads(triplepoint("replay", recorded, "--verify", "--json").stdout)
    assert (told["ok"], told["runs"][0]["sampled"]) == (False, 0)


@pytest.mark.slow
def test_what_cannot_hold_the_run_is_named(triplepoint: Run, tmp_path: Path) -> None:
    """A context that is too short, and another model that was made for less."""
    recorded = tmp_path / "run.jsonl"
    assert triplepoint("run", "Hello", "-m", "nano", "--trace", recorded).returncode == 0

    short = triplepoint("replay", recorded, "--verify", "--context", "10")
    other = triplepoint("replay", recorded, "--verify", "-m", SMALL)

    assert (short.returncode, other.returncode) == (2, 2)
    assert "--context 10 is less than the 4096 tokens that the run was recorded" in short.stderr
    assert "recorded with triplepoint-nano: give that model with -m" in other.stderr


def test_a_killed_second_question_is_told(triplepoint: Run, recorded: Path) -> None:
    """A conversation whose first question was answered and whose second was not."""
    whole = recorded.read_bytes().splitlines(keepends=True)
    more = [line.replace(b'"turn":1', b'"turn":2') for line in whole[1:3]]
    recorded.write_bytes(b"".join([*whole, *more]))

    done = triplepoint("trace", "show", recorded)

    assert "cut off in turn 2, in the decode that follows this prefill: " in done.stdout
    assert Trace.load(recorded).end is None


@pytest.mark.slow
def test_a_redacted_run_is_refused_by_that_name(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """--from and --verify say that there is no text and what still works; that does work."""
    trace = tmp_path / "t.jsonl"
    asked = ("run", "Which files are here?", "--dir", folder, "--redact", "--trace", trace)
    assert not triplepoint(*asked).returncode

    for what in (("--from", "1"), ("--from", "1.2", "--question", "And now?"), ("--verify",)):
        done = triplepoint("replay", trace, *what)
        assert done.returncode == 3
        assert "the trace is redacted" in done.stderr
        assert "--benchmark" in done.stderr
        assert "no such folder" not in done.stderr
    for what in ((), ("--benchmark",), ("--speed", "max")):
        done = triplepoint("replay", trace, *what)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_session_of_several_runs_replays(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """Its second run is shown, verified and gone on from as well as its first."""
    first, second, branch = (tmp_path / name for name in ("1.jsonl", "2.jsonl", "3.jsonl"))
    asked = ("--dir", folder, "--session", "replayed", "--trace")
    assert not triplepoint("run", "What is on line 2 of notes.txt?", *asked, first).returncode
    assert not triplepoint("run", "Which files are here?", *asked, second).returncode
    header = Trace.load(first).header
    assert header is not None

    shown = triplepoint("replay", second).stdout
    assert f"continues {header.run}, after 1 question\n? Which files are here?\n" in shown
    assert "? \n" not in shown
    assert "\nturn 2: Which files are here?\n" in triplepoint("trace", "show", second).stdout
    assert triplepoint("replay", second, "--verify").returncode == 0
    for turn, answer in (("1", "buy milk"), ("2.2", "app.log")):
        done = triplepoint("replay", second, "--from", turn, "--trace", branch)
        assert done.returncode == 0, done.stderr
        assert answer in done.stdout
    none = triplepoint("replay", first, "--from", "2")
    assert none.returncode == 3
    assert "from 2.1: the run has turn 1 only" in none.stderr
