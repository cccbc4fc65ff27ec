"""Whose turn it is, and requests that would come too late."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from helpers.serving import Server

from triplepoint.runtime.serve.http.api_error import APIError
from triplepoint.runtime.serve.requests.admission import (
    DEADLINE_HEADER,
    LEAD_S,
    OVERTAKES,
    Caller,
    Line,
    QueueSlot,
)
from triplepoint.runtime.serve.settings import Limits


class Order:
    """A line of one slot, and the order in which places got their turns."""

    def __init__(self) -> None:
        self.line = Line(1)
        self.order: list[str] = []
        self.places: dict[str, QueueSlot] = {}

    def join(self, name: str, namespace: str = "", **more: Any) -> None:
        """Add a place."""
        self.places[name] = QueueSlot(lambda: self.order.append(name), namespace, **more)
        self.line.join(self.places[name])

    def end(self) -> str:
        """The one that runs ends; which one."""
        name = self.order[-1]
        self.line.ended(self.places[name])
        return name


def test_first_come_first_served() -> None:
    """Nobody waits while there is a place, and then in the order of arrival."""
    line = Order()
    for name in "abc":
        line.join(name)
    assert line.order == ["a"]
    assert line.line.load == (1, 2)
    assert line.line.leave(line.places["b"])
    assert not line.line.leave(line.places["a"])
    line.end()
    line.end()
    assert line.order == ["a", "c"]
    assert line.line.load == (0, 0)


def test_returning_first_but_not_for_ever() -> None:
    """Who comes back goes before new ones, and overtakes each a few times at most."""
    line = Order()
    for name in ("running", "new"):
        line.join(name)
    for n in range(2 * OVERTAKES):
        line.join(f"back {n}", returning=True)
        line.end()

    assert line.order[1 : 1 + OVERTAKES] == [f"back {n}" for n in range(OVERTAKES)]
    assert line.order[1 + OVERTAKES] == "new"


def test_keys_get_their_shares() -> None:
    """A key with many requests does not keep one with few from its turn."""
    line = Order()
    for n in range(6):
        line.join(f"a{n}", "a", prefill_s=1.0)
    line.join("b0", "b", prefill_s=1.0)
    line.join("b1", "b", prefill_s=1.0)
    for _ in range(7):
        line.end()

    assert line.order[:5] == ["a0", "a1", "b0", "a2", "b1"]


def test_returning_ones_of_a_key_within_its_lead() -> None:
    """They go first until their key is too far ahead of another one that waits."""
    line = Order()
    line.join("a", "a", prefill_s=LEAD_S / 2)
    line.join("b", "b", prefill_s=1.0)
    line.join("a1", "a", returning=True, prefill_s=LEAD_S + 1)
    line.join("a2", "a", returning=True)
    for _ in range(3):
        line.end()
    assert line.order == ["a", "a1", "b", "a2"]


def test_an_idle_key_has_no_claim() -> None:
    """A key that comes late is not given all that it did not ask for before."""
    line = Order()
    for n in range(3):
        line.join(f"a{n}", "a", prefill_s=100.0)
    line.end()
    for n in range(2):
        line.join(f"b{n}", "b", prefill_s=100.0)
    line.end()
    line.end()
    assert line.order == ["a0", "a1", "a2", "b0"]


def test_a_deadline_that_cannot_be_met() -> None:
    """It is refused, with the time after which it could be; what is behind counts."""
    line = Order()
    line.join("first", prefill_s=30.0, token_s=0.1, max_tokens=100)
    line.join("second", prefill_s=20.0, token_s=0.1, max_tokens=100)
    late = QueueSlot(lambda: None, prefill_s=1.0)
    with pytest.raises(APIError) as refused:
        line.line.join(late, 30.0)

    assert refused.value.status == 429
    assert refused.value.code == "rate_limit_exceeded"
    assert refused.value.headers["Retry-After"] == str(30 + 10 + 20 + 10 + 1 - 30)
    with pytest.raises(APIError) as refused:
        line.line.join(QueueSlot(lambda: None, prefill_s=1000.0), 1.0)
    assert refused.value.headers["Retry-After"] == "120"
    with pytest.raises(APIError, match="deadline of the first token has passed; try again"):
        line.line.join(late, -0.5)
    line.line.join(late, 100.0)
    assert line.line.load == (1, 2)


def test_what_was_observed_corrects_the_prediction() -> None:
    """Where first tokens came later than was said, more is said of the next one."""
    line = Line(4)
    for _ in range(40):
        place = QueueSlot(lambda: None, prefill_s=1e-9)
        line.join(place)
        line.prompt_read(place)
        line.ended(place)
    with pytest.raises(APIError, match=r"take (3\.9|4)\d?( s|\.0)"):
        line.join(QueueSlot(lambda: None, prefill_s=1.0), 3.5)


@pytest.mark.parametrize("deadline", ["", "0", "-1", "1.5", "soon", "1" * 10, "²"])
def test_deadlines_that_are_none(deadline: str) -> None:
    """They are refused by name."""
    with pytest.raises(APIError, match=DEADLINE_HEADER):
        Caller.of({DEADLINE_HEADER: deadline}, "")


@pytest.mark.slow
def test_deadlines_of_requests(server: Server) -> None:
    """One that cannot be met is plain HTTP, streamed or not; one that can is answered."""

    def ask(deadline: str, **more: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": "a word " * 500}], "max_tokens": 2}
        headers = {DEADLINE_HEADER: deadline}
        return server.post("/v1/chat/completions", {**body, **more}, **headers)

    for more in ({}, {"stream": True}):
        answer = ask("1", **more)
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 120
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    long = [{"role": "user", "content": "a word " * 5000}]
    assert ask("1", messages=long).json()["error"]["code"] == "context_length_exceeded"
    assert ask("60000").status_code == 200
    assert ask("x").json()["error"]["param"] == DEADLINE_HEADER
    server.idle()


def test_waiting_requests_without_a_deadline(start: Any) -> None:
    """They wait, and are answered; what is left of the line is nothing."""
    server = start(limits=Limits(parallel=1, queue=8))
    server.wait()
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: server.chat(max_tokens=50), range(6)))

    assert [answer.status_code for answer in answers] == [200] * 6
    server.idle()
    assert server.service.line.load == (0, 0)
