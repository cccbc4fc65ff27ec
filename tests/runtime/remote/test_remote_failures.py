"""An agent on a server that is busy, broken, silent or gone, or that is told to stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import agent_on
from helpers.openai_server import DROP, RESET, calls, delta, openai_server, text, usage

from triplepoint import (
    Agent,
    ContextOverflowError,
    EngineError,
    LimitReachedError,
    ModelError,
    PassCancelledError,
    RemoteEngine,
    SettingError,
    open_conversation,
    tool,
)
from triplepoint.runtime.agent import remote_conversation as conversation
from triplepoint.runtime.agent.events import Notice
from triplepoint.runtime.agent.prompt import INTERRUPTED_CALL
from triplepoint.runtime.engine.sampling.settings import Sampling

QUESTION = "What is in a.txt?"


def test_a_busy_server_is_asked_again(folder: Path) -> None:
    """429 and 503 are waited for, as long as the server says, and the user is told."""
    with openai_server(429, 503, text("At last.")) as server:
        server.headers = {"Retry-After": "0.05"}
        agent = agent_on(server.url, folder)
        events = list(agent.stream("Hi"))

    notices = [e.message for e in events if isinstance(e, Notice)]
    assert notices[0] == f"HTTP 429 from {server.url}: busy; trying again in 0.05 s"
    assert len(server.requests) == 3
    assert agent.last_result is not None
    assert agent.last_result.answer == "At last."


def test_a_server_that_stays_busy(folder: Path) -> None:
    """After the last try the run ends with what the server said."""
    with openai_server(429, 429) as server:
        server.headers = {"Retry-After": "0"}
        agent = Agent(RemoteEngine(server.url, tries=2), workspace=folder, trace=False)
        with pytest.raises(EngineError, match=r"HTTP 429 .*: busy \(tried 2 times\)"):
            agent.run("Hi")
        assert agent.run("Again").answer == "nothing left"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([delta(content="half of"), DROP], "broke off: it ended early"),
        ([b"data: {not json\n\n"], "broke off: an event that is not JSON"),
        ([b"data: [1, 2]\n\n"], "broke off: an event that is not an object"),
        ([b"event: x\n\n", "[DONE]"], "broke off: no data"),
        ([delta(content="a"), {"error": {"message": "out of memory"}}], "failed: out of memory"),
        (400, "HTTP 400 from .*: refused"),
        (401, "HTTP 401 from .*: refused. Is the key"),
        ((500, "plain text"), "HTTP 500 from .*: plain text"),
        ([b"data: " + b"x" * 5_000_000], "longer than any answer"),
        (
            (200, {"error": {"message": "no such model"}}),
            "not .* a stream of events: no such model",
        ),
        ((301, {}), "HTTP 301 from .*: it has moved to another address"),
    ],
)
def test_a_broken_answer_ends_the_run(folder: Path, answer: Any, message: str) -> None:
    """Each kind of failure is named, what came before it is kept, and the next question works."""
    with openai_server(answer, text("Fine.")) as server:
        agent = agent_on(server.url, folder)
        with pytest.raises(EngineError, match=message):
            agent.run("Hi")
        assert agent.last_result is not None
        assert agent.last_result.status == "error"
        assert agent.run("Again").answer == "Fine."
        roles = [m["role"] for m in server.requests[-1]["messages"]]

    assert roles == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    "late",
    [{"error": {"message": "late", "code": 503}}, b"data: {not json\n\n", RESET],
    ids=["an error", "nonsense", "a reset"],
)
def test_what_breaks_behind_a_whole_answer(folder: Path, late: Any) -> None:
    """The server had said that it was done: only its counts are missing."""
    answer = [delta(content="It is four."), delta("stop"), late]
    with openai_server(answer) as server:
        agent = agent_on(server.url, folder)
        result = agent.run("Hi")

    assert (result.answer, len(server.requests)) == ("It is four.", 1)


def test_a_stream_that_does_not_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server sends to keep its connection is not waited for once the answer is whole."""
    monkeypatch.setattr(conversation, "COUNTS_S", 0.2)
    with openai_server([delta(content="It is four."), delta("stop"), 60]) as server:
        assert agent_on(server.url, folder).run("Hi").answer == "It is four."
        assert server.gone.wait(5)
    cut = [delta(content="It is"), delta("length"), 60]
    with openai_server(cut) as server, pytest.raises(LimitReachedError, match="was cut"):
        agent_on(server.url, folder).run("Hi")


def test_what_breaks_behind_an_answer_that_is_none(folder: Path) -> None:
    """The reason is told that the server gives."""
    answer = [delta(content="It is"), delta("error"), {"error": {"message": "overheated"}}]
    with openai_server(answer) as server, pytest.raises(EngineError, match="overheated"):
        agent_on(server.url, folder).run("Hi")


@pytest.mark.parametrize(
    ("said", "answer", "thinking"),
    [
        ("<thi", "<thi", ""),
        ("<think>Hm. </thi", "", "Hm. </thi"),
        ("It is </thi", "It is </thi", ""),
    ],
)
def test_an_answer_that_is_interrupted_within_a_tag(
    folder: Path, said: str, answer: str, thinking: str
) -> None:
    """Nothing that was said of it is lost."""
    broken = [delta(content=said), {"error": {"message": "overheated"}}]
    with openai_server(broken) as server:
        agent = agent_on(server.url, folder)
        with pytest.raises(EngineError, match="overheated"):
            agent.run("Hi")

    assert agent.last_result is not None
    assert (agent.last_result.answer, agent.last_result.thinking) == (answer, thinking)


def test_a_dropped_connection_is_tried_again(folder: Path) -> None:
    """Closed before a word came: nothing is lost by asking again."""
    with openai_server(DROP, text("Fine.")) as server:
        assert agent_on(server.url, folder).run("Hi").answer == "Fine."


def test_a_reset_connection_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is dropped as well; the failure has no text of its own, and is named."""
    monkeypatch.setattr(conversation, "_FIRST_WAIT", 0.05)
    with openai_server(RESET, text("Fine."), *[RESET] * 4) as server:
        agent = agent_on(server.url, folder)
        assert agent.run("Hi").answer == "Fine."
        with pytest.raises(EngineError, match=r"broke the connection .*: \w+Error \(tried 4 times"):
            agent.run("Again")


def test_a_silent_server_is_given_up_and_not_asked_again(folder: Path) -> None:
    """Sending a long prompt again would make it worse."""
    stuck = threading.Event()

    class Stuck(list):
        def __iter__(self) -> Any:
            stuck.wait(5)
            return iter(())

    with openai_server(Stuck([1])) as server:
        agent = agent_on(server.url, folder, silence=0.2)
        with pytest.raises(EngineError, match=r"no data from .* for 0\.2 seconds"):
            agent.run("Hi")
        stuck.set()

    assert len(server.requests) == 1


def test_a_server_that_keeps_the_connection(folder: Path) -> None:
    """The answer is whole at ``[DONE]``, whenever the connection ends."""
    with openai_server([*text("Fine."), 30.0]) as server:
        began = time.monotonic()
        assert agent_on(server.url, folder).run("Hi").answer == "Fine."
        assert time.monotonic() - began < 10
        assert server.gone.wait(5)


def test_half_of_a_character_can_be_sent(folder: Path) -> None:
    """From a question or the server's own reply: it is no text, and the conversation goes on."""
    with openai_server(text("a\ud83d"), text("Fine.")) as server:
        agent = agent_on(server.url, folder)
        agent.run("What is caf\udce9?")
        assert agent.run("Again").answer == "Fine."

    said = [m["content"] for m in server.requests[-1]["messages"][1:]]
    assert said == ["What is caf\ufffd?", "a\ufffd", "Again"]


def test_numbers_that_cannot_be(folder: Path) -> None:
    """Counts beyond any context are not believed; the tokens are estimated."""
    ends = [delta("stop"), usage(10**400, 10**400), "[DONE]"]
    with openai_server([delta(content="Fine."), *ends]) as server:
        result = agent_on(server.url, folder).run("Hi")

    assert result.usage.output_tokens == 1


def test_a_conversation_that_is_too_long(folder: Path) -> None:
    """What servers say of their context becomes our error for it."""
    error = {"message": "request (9000 tokens) exceeds", "type": "exceed_context_size_error"}
    with openai_server((400, {"error": error})) as server:
        agent = agent_on(server.url, folder)
        with pytest.raises(ContextOverflowError, match="9000 tokens"):
            agent.run("Hi")


def test_an_answer_that_is_cut(folder: Path) -> None:
    """A cut answer is a limit; a cut call never runs."""
    half = [*calls(("read_file", {"path": "a.txt"}))[:2], delta("length"), usage(5, 4), "[DONE]"]
    with openai_server([delta(content="long"), delta("length"), "[DONE]"], half) as server:
        agent = agent_on(server.url, folder)
        with pytest.raises(LimitReachedError, match="the answer was cut after 4,096"):
            agent.run("Hi")
        with pytest.raises(LimitReachedError, match="a tool call, which was not run, was cut"):
            agent.run("Hi")

    assert agent.trace.tools == []


def test_stop_closes_the_connection(folder: Path) -> None:
    """Also while the server is silent; the conversation goes on from there."""
    with openai_server([delta(content="a"), 30.0], text("Fine.")) as server:
        agent = agent_on(server.url, folder)
        threading.Timer(0.1, agent.stop).start()
        began = time.monotonic()
        with pytest.raises(PassCancelledError):
            agent.run("Hi")
        assert time.monotonic() - began < 10
        assert server.gone.wait(5)
        assert agent.run("Again").answer == "Fine."


def test_time_runs_out(folder: Path) -> None:
    """The time limit of a run holds while a server thinks."""
    with openai_server([30.0]) as server:
        agent = agent_on(server.url, folder, timeout=0.15)
        with pytest.raises(LimitReachedError, match=r"no answer within 0\.15 seconds"):
            agent.run("Hi")
        assert server.gone.wait(5)


def _refusal(param: str) -> tuple[int, Any]:
    """As OpenAI's latest models say it."""
    error = {"message": f"Unsupported: '{param}'", "param": param, "code": "unsupported_parameter"}
    return 400, {"error": error}


def test_parameters_that_a_server_refuses_are_left_out(folder: Path) -> None:
    """The limit goes by its other name, the temperature is the server's; asked for once."""
    refused = (_refusal("max_tokens"), _refusal("temperature"))
    with openai_server(*refused, text("Fine."), text("Fine.")) as server:
        agent = agent_on(server.url, folder)
        assert [agent.run(one).answer for one in ("Hi", "And now?")] == ["Fine."] * 2
        assert len(server.requests) == 4

    for body in server.requests[2:]:
        assert not {"max_tokens", "temperature"} & body.keys()
        assert body["max_completion_tokens"] > 0


@pytest.mark.parametrize(
    "refusal",
    [
        (400, {"error": {"message": "Unrecognized request argument supplied: stream_options"}}),
        (422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs"}]}),
    ],
)
def test_counts_that_a_server_cannot_give(folder: Path, refusal: Any) -> None:
    """They are not asked for again, and estimated."""
    with openai_server(refusal, text("Fine."), text("Fine.")) as server:
        agent = agent_on(server.url, folder)
        assert [agent.run("Hi").answer for _ in range(2)] == ["Fine.", "Fine."]
    assert ["stream_options" in one for one in server.requests] == [True, False, False]

    with (
        openai_server(refusal, refusal) as server,
        pytest.raises(EngineError, match="stream_options"),
    ):
        agent_on(server.url, folder).run("Hi")


def test_a_parameter_that_was_given_is_not_left_out(folder: Path) -> None:
    """The error is told."""
    with openai_server(_refusal("temperature"), _refusal("temperature")) as server:
        agent = agent_on(server.url, folder, sampling=Sampling(temperature=0.7))
        with pytest.raises(EngineError, match="Unsupported: 'temperature'"):
            agent.run("Hi")


def test_an_overflow_in_vllms_words(folder: Path) -> None:
    """Its 400 has no code; the message says what it is."""
    message = "This model's maximum context length is 16384 tokens. However, you requested 19591"
    with openai_server((400, {"error": {"message": message, "code": 400}})) as server:
        agent = agent_on(server.url, folder)
        with pytest.raises(ContextOverflowError, match="19591"):
            agent.run("Hi")


def test_calls_that_were_not_run_get_a_result(folder: Path) -> None:
    """After a limit the history is still one that a server takes."""
    asks = calls(("list_dir", {}), ("list_dir", {"path": "x"}))
    with openai_server(asks, text("Fine.")) as server:
        agent = agent_on(server.url, folder, max_steps=1)
        with pytest.raises(LimitReachedError, match="no answer after 1 step"):
            agent.run(QUESTION)
        agent.run("And now?")

    told = [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "tool"]
    assert told == [INTERRUPTED_CALL] * 2
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    assert roles[-4:] == ["tool", "tool", "assistant", "user"]


@pytest.mark.parametrize("saved", [False, True])
def test_the_result_of_a_call_that_ran_is_not_lost(tmp_path: Path, saved: bool) -> None:
    """A run that is stopped between two calls tells the next one what the first gave, in a session
    that goes on too."""

    @tool
    def note(text: str) -> str:
        """Notes a text."""
        agent.stop()
        return f"noted {text}"

    asks = calls(("note", {"text": "a"}), ("note", {"text": "b"}))
    with openai_server(asks, text("Fine.")) as server, open_conversation("it", tmp_path) as kept:
        agent = Agent(RemoteEngine(server.url), tools=[note], trace=False)
        with pytest.raises(PassCancelledError):
            agent.run("Note a and b")
        later = agent
        if saved:
            kept.save(agent)
            later = Agent(RemoteEngine(server.url), tools=[note], trace=False)
            kept.resume(later)
        later.run("And now?")

    told = [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "tool"]
    assert told == ["noted a", INTERRUPTED_CALL]


def test_an_answer_that_does_not_fit_at_the_last_step() -> None:
    """The limit says so: there were no calls."""
    with openai_server(text("five")) as server:
        agent = Agent(RemoteEngine(server.url), output_type=int, max_steps=1, trace=False)
        with pytest.raises(LimitReachedError, match="the last answer does not fit output_type"):
            agent.run("How many?")


# What is not there.


def test_no_server(folder: Path) -> None:
    """Nobody listens: said at once when the model has to be found out, else after some tries."""
    with openai_server() as server:
        url = server.url
    with pytest.raises(ModelError, match=r"cannot reach .* is the server running"):
        RemoteEngine(url)
    with openai_server() as server:
        server.models = {"data": [{"id": "half a \ud83d"}]}
        with pytest.raises(ModelError, match="lists no model"):
            RemoteEngine(server.url)
        server.models = b"[" * 100_000
        with pytest.raises(ModelError, match="does not answer with JSON"):
            RemoteEngine(server.url)


@pytest.mark.parametrize("key", ["", "key ", "k\n", "ä"])
def test_a_key_that_cannot_be_sent(key: str) -> None:
    """Such as of a variable that is set to nothing; it is not shown."""
    with pytest.raises(EngineError, match=r"api_key must be .* Leave it out") as error:
        RemoteEngine("http://127.0.0.1:9/v1", model="m", api_key=key)
    assert "ä" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8080", "ftp://x/v1", "http://", "http://me:pw@x/v1", "http://x:abc/v1"),
        *(
            "http://x:99999",
            "http://[::1",
            "http://x/\x7f",
            "http://xn--/v1",
            "http://x/" + "y" * 70000,
        ),
    ],
)
def test_what_is_no_address(url: str) -> None:
    """Said before anything is sent."""
    with pytest.raises(EngineError, match=r"not a server URL|not in the URL"):
        RemoteEngine(url)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ALL_PROXY", "socks9://x", "proxy .* cannot be used for https://x.invalid/v1"),
        ("HTTPS_PROXY", "http://:a:b", "proxy .* cannot be used"),
        ("SSL_CERT_FILE", "/nonexistent", "certificates that SSL_CERT_FILE"),
    ],
)
def test_an_environment_that_cannot_be_used(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy or certificates that are none are named."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=said):
        RemoteEngine("https://x.invalid/v1")


def test_a_server_without_a_list_of_models_runs() -> None:
    """Nobody is asked whether it does."""
    with openai_server() as server:
        server.models = 404
        with pytest.raises(ModelError, match=r"HTTP 404 .*\. The address must go up to /v1"):
            RemoteEngine(server.url)
        server.models = 401
        with pytest.raises(ModelError, match=r"Is the key .* right\?$"):
            RemoteEngine(server.url)


def test_a_list_of_models_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is waited for without end where a byte comes now and then, as comments do."""
    monkeypatch.setattr("triplepoint.runtime.remote.exchange.MAX_FETCH", 0.3)
    with openai_server() as server:
        server.models = [30.0]
        with pytest.raises(ModelError, match=r"/models has not come to its end in 0\.3 seconds"):
            RemoteEngine(server.url)
        assert server.gone.wait(5)


def test_a_silent_list_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that is told is the one that was waited."""
    monkeypatch.setattr("triplepoint.runtime.remote.engine.CONNECT", 0.2)
    over = threading.Event()

    class Stuck(list):
        def __iter__(self) -> Any:
            over.wait(5)
            return iter(())

    with openai_server() as server:
        server.models = Stuck()
        with pytest.raises(ModelError, match=r"no data from .* for 0\.2 seconds"):
            RemoteEngine(server.url)
        over.set()
