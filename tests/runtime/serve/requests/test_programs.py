"""Conversations that pause for tools, keys that see nothing of each other, and nonces."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.serving import Server

from triplepoint import Engine
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.conversation.chat import Message
from triplepoint.runtime.serve.models.turns import normalize
from triplepoint.runtime.serve.requests import programs
from triplepoint.runtime.serve.requests.admission import DEADLINE_HEADER
from triplepoint.runtime.serve.requests.programs import Programs, session_of

SYSTEM = " ".join(f"Rule {n}: answer in one word." for n in range(80))
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "maxLength": 4}},
            "required": ["place"],
        },
    },
}


def ask(
    server: Server, messages: Sequence[Any], headers: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    body = {"messages": list(messages), "max_tokens": 4, **more}
    answer = server.post("/v1/chat/completions", body, **(headers or {}))
    assert answer.status_code == 200, answer.text
    return answer.json()


def talk(system: str, text: str = "hello") -> list[Any]:
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def cached(answer: dict[str, Any]) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def call(server: Server, messages: list[Any], **headers: str) -> list[Any]:
    """Have the tool called; the conversation with its result."""
    more = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 200}
    answer = ask(server, messages, headers, **more)["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    message = answer["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "a tree"}
    return [*messages, {**message, "content": message["content"] or ""}, result]


def engine_of(server: Server) -> Engine:
    return server.service.models.loaded()[0].engine


@pytest.mark.slow
@pytest.mark.parametrize("headers", [{}, {"x-claude-code-session-id": "s1"}])
def test_a_program_that_pauses(server: Server, headers: dict[str, str]) -> None:
    """What it computed survives that memory is wanted; its return is known, and reads its result
    alone.
    """
    engine = engine_of(server)
    engine.core.prefix_cache.clear()
    later = call(server, talk(SYSTEM, f"what is there? {len(headers)}"), **headers)
    assert len(server.service.programs) == 1
    engine.core.prefix_cache.evict(1 << 40)
    answer = ask(server, later, headers, tools=[TOOL])

    assert cached(answer) > answer["usage"]["prompt_tokens"] // 2
    assert len(server.service.programs) == 0
    server.idle()  # the answer is there a moment before its session has ended
    engine.core.prefix_cache.evict(1 << 40, kept=True)
    assert engine.core.prefix_cache.nbytes == 0


def test_a_return_that_is_refused_for_its_deadline(server: Server) -> None:
    """The conversation is known when it comes again, until its turn has come."""
    headers = {"x-session-id": "late"}
    before = len(server.service.programs)
    later = call(server, talk(SYSTEM, "what is there?"), **headers)
    engine_of(server).core.prefix_cache.clear()
    body = {"messages": later, "max_tokens": 4, "tools": [TOOL]}
    refused = server.post("/v1/chat/completions", body, **headers, **{DEADLINE_HEADER: "1"})

    assert refused.status_code == 429
    assert len(server.service.programs) == before + 1
    ask(server, later, headers, tools=[TOOL])
    assert len(server.service.programs) == before


def test_without_a_pause_nothing_is_kept(server: Server) -> None:
    """An answer that ends is a conversation like others to the memory."""
    engine = engine_of(server)
    engine.core.prefix_cache.clear()
    ask(server, talk(SYSTEM))
    assert engine.core.prefix_cache.nbytes > 0
    server.idle()
    engine.core.prefix_cache.evict(1 << 40)
    assert engine.core.prefix_cache.nbytes == 0


@pytest.mark.slow
def test_keys_do_not_share(start: Any) -> None:
    """What one key has had computed is found by it, and by keys of its name, and by nobody else."""
    names = {"a1": "ann", "a2": "ann"}
    server = start(keys=("a1", "a2", "b", "c"), key_names=names)
    server.wait()
    first = [cached(ask(server, talk(SYSTEM), bearer(key))) for key in ("a1", "b", "c")]
    again = [cached(ask(server, talk(SYSTEM), bearer(key))) for key in ("a2", "b", "c")]

    assert first == [0, 0, 0]
    assert min(again) > PAGE
    assert "a1" not in repr(server.settings)


def test_public_prefixes(start: Any) -> None:
    """They are computed once for all keys, and stay; what follows them is not shared."""
    server = start(keys=("a", "b"), public=(SYSTEM,))
    server.wait()
    engine = engine_of(server)
    engine.core.prefix_cache.evict(1 << 40)
    public = len(server.service.models.loaded()[0].prompts.beginning(SYSTEM))
    long = "hello " * 2 * PAGE
    found = [cached(ask(server, talk(SYSTEM, long), bearer(key))) for key in ("a", "b", "a")]

    assert public > PAGE
    assert public <= found[0] < public + 8
    assert found[1] == found[0]
    assert found[2] > found[0] + PAGE


def test_nonces_of_system_prompts(server: Server) -> None:
    """A request whose system prompt differs in its nonce alone is known; the answer says so."""
    lines = "x-anthropic-billing-header: cc_version=2.1.37.{0}; cc_entrypoint=cli; cch={0};\n"
    answers = [ask(server, talk(lines.format(n) + SYSTEM)) for n in ("fa690", "00b1c")]
    usage = answers[1]["usage"]

    assert cached(answers[1]) == usage["prompt_tokens"] - 1
    assert [answer["timings"]["normalized"] for answer in answers] == [["cch"], ["cch"]]
    assert "normalized" not in ask(server, talk(SYSTEM))["timings"]


@pytest.mark.parametrize(
    "message",
    [
        Message("user", "cch=12345;"),
        Message("system", "Be brief.\nUse cch=12345 as your code."),
        Message("system", "a cache"),
    ],
)
def test_what_is_no_nonce(message: Message) -> None:
    """Texts of users, and of system prompts behind their first line, are what they are."""
    assert normalize([message]) == ([message], ())


def test_sessions_of_headers() -> None:
    """All that an agent says of itself is its identity; nothing else is."""
    one = {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "1"}
    assert session_of(one) != session_of({**one, "x-claude-code-agent-id": "2"})
    assert session_of({"session-id": "s", "thread-id": "t", "other": "x"}) == session_of(
        {"session-id": "s", "thread-id": "t"}
    )
    assert session_of({"user-agent": "x", "x-session-id": ""}) is None


def test_the_longest_prefix_is_meant() -> None:
    """Of two conversations that a prompt begins like, it goes on with the longer; once."""
    known = Programs()
    for read in ([1, 2], [1, 2, 3, 4], [1, 2, 9]):
        known.paused("", "m", None, read, ["look"])
    text = [1, 2, 3, 4, 5]

    assert not known.returns("", "m", None, [1])
    assert not known.returns("other", "m", None, text)
    assert not known.returns("", "n", None, text)
    assert not known.returns("", "m", "a session", text)
    assert [known.returns("", "m", None, text) for _ in range(3)] == [True, True, False]
    assert len(known) == 1


def test_a_session_that_asks_for_something_else() -> None:
    """A title asked for during a pause does not end it."""
    known = Programs()
    known.paused("", "m", "s", [1, 2, 3], ["look"])
    assert known.returns("", "m", "s", [7, 8])
    assert known.returns("", "m", "s", [1, 2, 3, 4])
    assert not known.returns("", "m", "s", [1, 2, 3, 4])


def test_time_to_live_follows_the_tool() -> None:
    """A tool that comes back at once has what waits for it kept for a short time."""
    known = Programs()
    times = list[float]()
    for _ in range(programs.ENOUGH + 1):
        times.append(known.paused("", "m", "s", [1, 2], ["look"]))
        assert known.returns("", "m", "s", [1, 2, 3])

    assert times[0] == programs.TTL_S
    assert times[-1] == programs.MIN_TTL_S
    assert known.paused("", "m", "s", [1, 2], ["look", "other"]) == programs.TTL_S
    assert known.paused("else", "m", "s", [1, 2], ["look"]) == programs.TTL_S


def test_time_in_the_line_is_not_the_tools() -> None:
    """What a request waits for its turn does not count as time that its tool took."""
    known = Programs()
    for _ in range(programs.ENOUGH):
        known.paused("", "m", "s", [1, 2], ["look"])
        came = time.monotonic()
        assert known.knows("", "m", "s", [1, 2, 3])
        assert known.returns("", "m", "s", [1, 2, 3], came + 100.0)
    assert not known.knows("", "m", "s", [1, 2, 3])
    assert known.paused("", "m", "s", [1, 2], ["look"]) == pytest.approx(200.0, abs=1.0)


def test_many_programs_are_bounded() -> None:
    """The oldest pauses are forgotten."""
    known = Programs()
    for n in range(programs.MAX_PROGRAMS + 10):
        known.paused("", "m", None, [n, 1], ["look"])
    assert len(known) == programs.MAX_PROGRAMS
    assert not known.returns("", "m", None, [0, 1, 2])
    assert known.returns("", "m", None, [10, 1, 2])


def test_agents_of_keys(start: Any, tmp_path: Path) -> None:
    """What an agent reads for one key is not found by that of another."""
    (tmp_path / "notes.txt").write_text("A note.")
    server = start(keys=("a", "b"), agents={"agent:notes": tmp_path})
    server.wait()
    model = {"model": "agent:notes", "max_tokens": 8}
    answers = [ask(server, talk(SYSTEM)[1:], bearer(key), **model) for key in ("a", "b", "a")]

    assert [cached(answer) > 0 for answer in answers] == [False, False, True]
