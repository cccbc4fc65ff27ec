"""A conversation with a model on another server (see `Conversation`).

The server gets the whole conversation each time, in the same bytes as before, so that it can use
its own cache of it. What time it takes is measured from here.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import ContextOverflowError, EngineError
from ...traces.events import PhaseEvent
from ..conversation.chat import Message
from ..conversation.ledger import Reuse
from ..conversation.repetition import RepetitionStop, Words
from ..conversation.reply import Reply
from ..engine.sampling.settings import GREEDY
from ..remote.exchange import BusyError, Exchange, ParameterRefusedError
from .conversation import Conversation
from .events import AgentEvent, Notice, PhaseFinished, TextDelta, ThinkingDelta
from .prompt import INTERRUPTED_CALL, counted, cut_part
from .streamed_reply import StreamedReply, sendable

if TYPE_CHECKING:
    from ..remote.engine import RemoteEngine
    from .config import AgentConfig
    from .run_context import RunContext

_SILENT = "(interrupted)"  # many templates want user and assistant in turns
_FIRST_WAIT = 0.5  # seconds before the second try, doubled each time
MAX_COUNT = 2**53  # of tokens; a server that says more is wrong, and no float takes any number
COUNTS_S = 10.0  # seconds that a server has for its counts, once the answer is whole
PATIENCE = 2  # times the tokens that it may write, until a request is ended that continues
_CUT = ("", "length", "error", "abort", "content_filter")  # how an answer ends that is not whole
_CHARS = 3.5  # characters a token, where the server does not count for us


@dataclass
class _Times:
    """Times of a streamed request: sent, first and last piece, and the first's wall clock."""

    sent: float
    first: float | None = None
    last: float = 0.0
    first_clock: float = 0.0


class RemoteConversation(Conversation[int]):
    """A `Conversation` with a model on another server.

    Attributes:
        wire: the messages in OpenAI's format, as sent.
    """

    def __init__(
        self, engine: RemoteEngine, config: AgentConfig, tools: Sequence[Mapping[str, Any]]
    ) -> None:
        super().__init__()
        self.engine = engine
        self.config = config
        self.wire: list[dict[str, Any]] = []
        self._tools = list(tools)
        self._purpose = "prompt"
        self._noted_text_calls = False

    @property
    def notes(self) -> list[str]:
        notes = ["compact has no effect: the server's model has its context there"]
        bounded = (self.config.thinking_tokens, self.config.thinking_seconds) != (None, None)
        limit = ["a server's model is not held to a budget of thinking"] * bounded
        return notes * self.config.compact + limit

    @property
    def context(self) -> int:
        return self.config.context or self.engine.context

    def count(self, text: str) -> int:
        """Estimate the tokens of a text; the tokenizer is on the server."""
        return int(len(text.encode("utf-8", "surrogatepass")) / _CHARS) + 1

    def stop(self) -> None:
        """Do nothing: `generate` polls the run and closes the connection."""

    def position(self) -> int:
        return len(self.wire)

    def rewind(self, position: int) -> None:
        del self.wire[position:]

    def load_history(self, messages: Sequence[Message], turn: int = 0) -> None:
        """Start with the messages of another conversation (see `Conversation.load_history`)."""
        super().load_history(messages, turn)
        self.wire = []
        self._write_all(messages)

    def fork_from(self, other: Conversation[int]) -> None:
        """Copy the messages sent so far (see `Conversation.fork_from`)."""
        assert isinstance(other, RemoteConversation)
        super().fork_from(other)
        self.wire = [dict(message) for message in other.wire]

    def settings(self) -> dict[str, Any]:
        return {
            "context": self.context,
            "sampling": (self.config.sampling or GREEDY).as_dict(),
            "format": "openai",
            "server": self.engine.base_url,
        }

    def append(self, run: RunContext, new: Sequence[Message], purpose: str) -> Iterator[AgentEvent]:
        """Queue the messages; `generate` sends them (see `Conversation.append`)."""
        stopped = self.wire and self.wire[-1]["role"] in ("user", "tool")  # before it spoke
        if stopped and any(message.role == "user" for message in new):
            self._write("assistant", _SILENT)
        elif not any(message.role == "tool" for message in new[:1]):
            self._settle([])
        for message in new:
            run.log_message(message.role, message.content, by=message.by)
        self._write_all(new)
        self.messages = [*self.messages, *new]
        self._purpose = purpose
        yield from ()

    def generate(self, run: RunContext) -> Generator[AgentEvent, None, Reply]:
        """Send the conversation and parse the streamed reply (see `Conversation.generate`)."""
        left, attempt = run.tokens_left(), 1
        while True:
            try:
                return (yield from self._request_once(run, left))
            except ParameterRefusedError as error:
                if error.param in self.engine.refused:
                    raise
                self.engine.refused.add(error.param)
            except BusyError as error:
                if attempt == self.engine.tries:
                    message = f"{error} (tried {attempt} times)"
                    raise BusyError(message, error.wait_s, dropped=error.dropped) from None
                wait = error.wait_s
                if wait is None:
                    wait = _FIRST_WAIT * 2 ** (attempt - 1)
                yield Notice(f"{error}; trying again in {wait:.2g} s")
                _wait(run, wait)
                attempt += 1

    def _request_once(self, run: RunContext, left: int) -> Generator[AgentEvent, None, Reply]:
        stream = StreamedReply()
        times = _Times(time.perf_counter())
        exchange = Exchange(self.engine.server, self._body(left))
        words = Words()
        stop = RepetitionStop(words.decode, self._given)

        def check() -> None:
            run.check_stop()
            if stream.finish and time.perf_counter() > times.last + COUNTS_S:
                raise EngineError(f"{self.engine.base_url} does not end the stream")

        try:
            for at, chunk in _until_whole(exchange.chunks(check), stream):
                pieces = stream.take(chunk)
                if (stream.pieces or stream.finish) and times.first is None:
                    times.first, times.first_clock = at, time.time()
                times.last = at
                for mode, text in pieces:
                    yield TextDelta(text) if mode == "answer" else ThinkingDelta(text)
                if stream.pieces > PATIENCE * left and self._over(stream, left):
                    stream.finish = "length"
                    break
                if self.config.repetition_stop and any(map(stop.push, words.push(stream.fresh()))):
                    break
            stream.end()
            if rest := stream.read_text() if self._tools and not stop.length else stream.held:
                yield TextDelta(rest)
            if stream.as_text and not self._noted_text_calls:
                self._noted_text_calls = True
                yield Notice("the server sends tool calls as text; they are parsed from it")
        finally:
            exchange.close()
            stream.end()  # where it was interrupted
            reply = self._reply(stream)
            reply.repeated = stop.length
            phases = self._keep(run, stream, reply, times)
        yield from phases
        if reply.repeated:
            yield Notice(
                f"the model repeated itself for {counted(reply.repeated, 'word')} and sign, so "
                "its reply was stopped"
            )
        else:
            self._check_whole(run, stream, reply)
        return reply

    def _over(self, stream: StreamedReply, left: int) -> bool:
        """Return whether a reply is so long that its server ignored the token limit.

        The length is estimated from the text, as servers split it into pieces of any size, and
        without thinking, which some do not count.
        """
        calls = "".join(call.arguments for call in stream.calls.values())
        return self.count(stream.answer + calls) > PATIENCE * left

    def _given(self) -> list[str]:
        """Return the texts that the model may copy: all but its own."""
        return [str(one["content"]) for one in self.wire if one["role"] != "assistant"]

    def _body(self, left: int) -> dict[str, Any]:
        """Build the request; history and tools come first, for the server's prefix cache."""
        refused = self.engine.refused
        body: dict[str, Any] = {
            "model": self.engine.model.name,
            "messages": self.wire,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body["max_completion_tokens" if "max_tokens" in refused else "max_tokens"] = left
        if self._tools:
            body["tools"] = self._tools
            calls = self.decision.calls or "auto"
            if calls != "auto" and "tool_choice" not in refused:
                body["tool_choice"] = calls
        body |= {"temperature": 0.0, **self._sampling()}
        if "stream_options" in refused:
            del body["stream_options"]
        if "temperature" in refused and self.config.sampling is None:
            del body["temperature"]
        if self.config.output is not None:
            schema = {"name": "answer", "schema": dict(self.config.output)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if self.config.options:
            body["chat_template_kwargs"] = dict(self.config.options)
        return body

    def _sampling(self) -> dict[str, Any]:
        """Convert the sampling settings; those beyond OpenAI's get llama-server's names."""
        given = (self.config.sampling or GREEDY).given()
        for name in ("stop", "dry_sequence_breakers"):
            if name in given:
                given[name] = list(given[name])
        if "logit_bias" in given:  # a server's own bounds
            bias = given["logit_bias"]
            given["logit_bias"] = {str(t): max(-100.0, min(b, 100.0)) for t, b in bias.items()}
        if "penalty_last" in given:
            given["repeat_last_n"] = given.pop("penalty_last")
        if "order" in given:
            given["samplers"] = ["penalties", "dry", *given.pop("order")]
        return given

    def _reply(self, stream: StreamedReply) -> Reply:
        whole = stream.finish not in _CUT
        calls = stream.tool_calls()
        reply = Reply(stream.answer.strip(), stream.thinking.strip(), calls if whole else [])
        if calls and not whole:
            reply.cut_call = calls[-1].text
        reply.repaired = stream.as_text and bool(reply.calls)
        return reply

    def _keep(
        self, run: RunContext, stream: StreamedReply, reply: Reply, times: _Times
    ) -> list[PhaseFinished]:
        """Add the reply to the conversation, even when it was cut, and record the phases."""
        if times.first is None:
            return []
        reply.calls = run.identify(reply.calls)
        calls = [(call.name, sendable(call)) for call in reply.calls]
        self._write("assistant", stream.content, calls)
        if calls and stream.thinks_as:  # DeepSeek's server takes no results without it
            self.wire[-1][stream.thinks_as] = stream.thinking
        phases = self._phases(stream, times)
        prefill, decode = phases
        decode.finish_reason = "repetition" if reply.repeated else ""
        run.usage.input_tokens += prefill.kv_after
        run.usage.cached_tokens += prefill.cached_tokens
        run.usage.decode_s += decode.wall_s
        if run.usage.ttft_s is None:
            run.usage.ttft_s = decode.ttft_s = times.first - run.began
        shown = "".join(
            [stream.answer, *(f"\n{call.name} {call.text}" for call in stream.tool_calls())]
        )
        made = Message("assistant", shown, calls=tuple(reply.calls), text=reply.answer)
        self.messages = [*self.messages, made]
        run.log_reply(reply, shown, decode.tokens)
        run.log_phase(prefill, self._purpose)
        run.log_phase(decode, "tool_call" if stream.calls else "answer")
        reuse = Reuse(prefill.cached_tokens, prefill.kv_after)
        return [PhaseFinished(prefill, reuse), PhaseFinished(decode)]

    def _phases(self, stream: StreamedReply, times: _Times) -> tuple[PhaseEvent, PhaseEvent]:
        """Split the request into a prefill and a decode phase, as seen by the client.

        The prefill ends with the first piece received, so it includes the round trip and the first
        token; the decode is the rest.
        """
        assert times.first is not None
        prompt = _number(stream.usage, "prompt_tokens")
        details = stream.usage.get("prompt_tokens_details")
        cached = _number(details, "cached_tokens") if isinstance(details, dict) else 0
        sampled = _number(stream.usage, "completion_tokens")
        plan = "counted by the server"
        if not prompt or not sampled:
            plan = "tokens estimated"
            prompt = prompt or sum(self.count(str(one)) for one in self.wire[:-1])
            sampled = sampled or stream.pieces
        cached = min(cached, prompt)
        if stream.pieces > 8 and times.last - times.first < 1e-4 * stream.pieces:
            plan += ", sent all at once"  # so the two phases cannot be separated
        common: dict[str, Any] = {"predicted": "unknown", "observed": "unknown"}
        common |= {"source": "remote", "plan": plan}
        if stream.timings:
            common["server_timings"] = stream.timings
        prefill = PhaseEvent(
            phase="prefill",
            tokens=prompt - cached,
            kv_before=cached,
            kv_after=prompt,
            cached_tokens=cached,
            wall_s=times.first - times.sent,
            ts=times.first_clock,
            **common,
        )
        decode = PhaseEvent(
            phase="decode",
            tokens=sampled,
            kv_before=prompt,
            kv_after=prompt + sampled,
            cached_tokens=prompt,
            wall_s=times.last - times.first,
            sampling=(self.config.sampling or GREEDY).as_dict(),
            **common,
        )
        return prefill, decode

    def _check_whole(self, run: RunContext, stream: StreamedReply, reply: Reply) -> None:
        """Raise an error for a cut turn, which is no answer; a cut call never runs."""
        if not stream.finish:
            what = "it ended early" if stream.pieces else "no data"
            raise EngineError(f"the stream from {self.engine.base_url} broke off: {what}")
        if stream.finish not in _CUT:
            return
        if stream.finish != "length":
            raise EngineError(
                f"{self.engine.base_url} cut the answer: it ended with {stream.finish!r}, not "
                "because it was done"
            )
        total = _number(stream.usage, "prompt_tokens") + _number(stream.usage, "completion_tokens")
        if total >= self.context:
            raise ContextOverflowError(
                f"{cut_part(reply)} was cut: the context holds {self.context:,} tokens. Ask for "
                "less at once"
            )
        raise run.cut_error(reply)

    def _write(self, role: str, content: str, calls: Sequence[tuple[str, str]] = ()) -> None:
        """Append a message to `wire`; `calls` are names with JSON arguments."""
        message: dict[str, Any] = {"role": role, "content": content}
        if calls:
            message["tool_calls"] = [
                {
                    "id": _call_id(len(self.wire), number),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for number, (name, arguments) in enumerate(calls)
            ]
        self.wire.append(message)

    def _write_all(self, messages: Sequence[Message]) -> None:
        """Append messages to `wire`; match results to the calls before them."""
        results: list[Message] = []
        for message in messages:
            if message.role == "tool":
                results.append(message)
                continue
            self._settle(results)
            results = []
            text = message.content if message.text is None else message.text
            calls = [(call.name, call.json_arguments) for call in message.calls]
            self._write(message.role, text, calls)
        if results:  # else calls at the end get theirs with the next message
            self._settle(results)

    def _settle(self, new: Sequence[Message]) -> None:
        """Append a result for every pending call, in order, as servers require."""
        if not self.wire or "tool_calls" not in self.wire[-1]:
            return
        results = [message for message in new if message.role == "tool"]
        for number, call in enumerate(self.wire[-1]["tool_calls"]):
            text = results[number].content if number < len(results) else INTERRUPTED_CALL
            self.wire.append({"role": "tool", "tool_call_id": call["id"], "content": text})


def _until_whole(
    chunks: Iterator[tuple[float, dict[str, Any]]], stream: StreamedReply
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield a reply's chunks; ignore a failure after `finish`, which only loses the usage."""
    try:
        yield from chunks
    except EngineError as error:
        if stream.finish not in _CUT or stream.finish == "length":
            return
        if isinstance(error, BusyError) and stream.pieces:  # to ask again would say it twice
            raise EngineError(str(error)) from None
        raise


def _call_id(message: int, number: int) -> str:
    """Return a call id of nine letters and digits, the only kind that Mistral's servers accept."""
    return f"call{message % 1000:03}{number % 100:02}"


def _number(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return value if isinstance(value, int) and 0 < value <= MAX_COUNT else 0


def _wait(run: RunContext, seconds: float) -> None:
    until = time.perf_counter() + seconds
    while (left := until - time.perf_counter()) > 0:
        run.check_stop()
        time.sleep(min(left, 0.05))
