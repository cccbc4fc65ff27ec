"""What comes on the stream of a server's messages, whatever it is."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.tools.mcp.stdio import Replies

REPLY = {
    "jsonrpc": "2.0",
    "id": 2,
    "result": {"content": [{"type": "text", "text": "caf\xe9 {1}"}]},
}
SOUND = json.dumps(REPLY).encode()


def waiting(*numbers: int) -> Replies:
    """For the replies to requests."""
    replies = Replies()
    for number in (0, 1, *numbers):
        replies.sent(SimpleNamespace(id=number, method="tools/call"))
    for number in {0, 1} - {*numbers}:
        del replies.waiting[str(number)]
    return replies


def changed(**parts: Any) -> bytes:
    """The reply with other parts; without those that are None."""
    return json.dumps({key: one for key, one in (REPLY | parts).items() if one != ""}).encode()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (SOUND, "caf\xe9 {1}"),
        (b"\xef\xbb\xbf" + SOUND, "caf\xe9 {1}"),
        (SOUND.decode().encode("utf-16"), "caf\xe9 {1}"),
        (SOUND.replace(b"\\u00e9", b"\xe9"), "caf\ufffd {1}"),
        (SOUND.replace(b"\\u00e9", b"\\ud83d"), "caf\ufffd {1}"),
        (b"progress {50%} " + SOUND, "caf\xe9 {1}"),
        (SOUND + b" done\r", "caf\xe9 {1}"),
        (b'{"jsonrpc": "2.0", "method": "notifications/message"} ' + SOUND, "caf\xe9 {1}"),
        (b"[" + SOUND + b"]", "caf\xe9 {1}"),
        (changed(id="2"), "caf\xe9 {1}"),
        (changed(jsonrpc="1.0", error=None), "caf\xe9 {1}"),
    ],
)
def test_what_can_be_read_is_read(line: bytes, text: str) -> None:
    """A byte order mark, another encoding, half a surrogate pair, words around a reply."""
    found, errors = waiting(2).read(line)

    assert found[-1]["result"]["content"][0]["text"] == text
    assert (found[-1]["id"], errors) == ("2", [])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"code": -32602, "message": "bad thing"}, "bad thing"),
        ({"code": "E_BAD", "message": "bad thing"}, "bad thing"),
        ({"code": 1}, '{"code": 1}'),
        ("bad thing", "bad thing"),
        ([1], "[1]"),
    ],
)
def test_an_error_of_any_form(error: Any, message: str) -> None:
    """Becomes one of JSON-RPC."""
    ((found,), errors) = waiting(2).read(changed(result=None, error=error))

    assert found["error"] == {"code": -32603, "message": message}
    assert not errors


@pytest.mark.parametrize(
    "line",
    [
        SOUND[:-2],
        SOUND.replace(b"}", b"]"),
        changed(result="pong"),
        changed(result=""),
        changed(id=None),
        changed(id=7),
        changed(id=[2]),
        changed(id=2.5),
        changed(id=None, result="", error={"code": -32700, "message": "Parse error"}),
        b'  "jsonrpc": "2.0",',
        b"[" * 100_000 + SOUND[:-1],
    ],
    ids=lambda line: line[:60],
)
def test_what_cannot_be_read_fails_its_request(line: bytes) -> None:
    """At once, with what came; another request only where nothing says whose reply it was."""
    found, errors = waiting(2).read(line)

    assert ([one for one in found if "method" not in one], len(errors)) == ([], 1)
    assert errors[0]["id"] == "2"
    said = errors[0]["error"]["message"]
    assert said.startswith("its reply cannot be read (")
    assert said.isprintable()
    assert len(said) < 350
    assert [one["id"] for one in waiting(2, 1).read(SOUND[:-2])[1]] == ["2"]


@pytest.mark.parametrize(
    "line",
    [
        b"hello debug",
        b"INFO: {not json",
        b'{"level": "info", "msg": "a reply of jsonrpc"}',
        b'DEBUG got {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"result": 1}}',
        b'DEBUG got {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "par',
        b"\xff\xfe\x00",
        b"[1, 2, {}]",
        changed(id=1),
    ],
)
def test_noise_is_passed_over(line: bytes) -> None:
    """A log, an echo of our request, and a reply that comes too late."""
    replies = waiting(2)
    found, errors = replies.read(line)

    assert not any(one.get("id") == "2" or "method" in one for one in found)
    assert not errors
    assert replies.read(SOUND)[0]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(SOUND) - 1), st.integers(0, 3), st.binary(min_size=0, max_size=3))
def test_a_broken_reply_is_never_waited_for(at: int, cut: int, new: bytes) -> None:
    """Bytes of a reply are replaced, added or missing: it is read, or its request fails."""
    line = SOUND[:at] + new + SOUND[at + cut :]
    replies, settled = waiting(2), list[Any]()
    for part in line.split(b"\n"):
        found, errors = replies.read(part)
        settled += [one for one in (*found, *errors) if one["id"] == "2"]

    other_request = b'"id": 0' in line or b'"id": 1' in line
    assert settled or other_request or (b'"jsonrpc"' not in line and b'"id": 2' not in line)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.binary(max_size=20) | st.text('{}[]",:\\u0d8id result', max_size=20).map(str.encode)
    )
)
def test_any_bytes(lines: list[bytes]) -> None:
    """Raise nothing, and the reply behind them is read."""
    replies = waiting(2)
    for line in lines:
        assert replies.read(line) == ([], [])
    assert replies.read(SOUND)[0]
