"""Clients of benchmarks and forecasts on an engine in this process, without a server."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, cast

from ...errors import TriplepointError
from ..bench.load_client import ChatClient, Reply
from ..bench.load_work import Work
from ..conversation.chat import Message
from ..conversation.messages import Role
from ..engine.engine import Engine
from ..engine.sampling.settings import Sampling
from ..engine.session import Session
from ..serve.models.prompts import Conversation, Prompts
from .load_engine import load_calibrated
from .output import Output


@contextmanager
def engine_client(
    args: argparse.Namespace, output: Output, options: Mapping[str, Any], work: Work
) -> Iterator[Callable[[], ChatClient]]:
    """Load an engine, and yield a factory of clients on it; close the engine on exit.

    Raises:
        SettingError: the work does not fit its context.
    """
    with load_calibrated(args, output) as engine:
        work.check_room(engine.context, lambda text: len(engine.tokenizer.encode(text)))
        with closing(engine.session()) as session:
            session.phases.warmup()
        prompts = Prompts(engine.tokenizer)
        yield lambda: EngineClient(engine, prompts, options)


class EngineClient:
    """An in-process `ChatClient` on an engine; each request has its own session."""

    def __init__(self, engine: Engine, prompts: Prompts, options: Mapping[str, Any]) -> None:
        self._engine, self._prompts, self._sampling = engine, prompts, Sampling(**options)
        self._session: Session | None = None

    def ask(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> Reply:
        """Generate one reply in a new session: see `ChatClient.ask`."""
        reply, engine = Reply(time.perf_counter()), self._engine
        said = [Message(cast("Role", one["role"]), one["content"]) for one in messages]
        talk = Conversation(said)
        stream = engine.tokenizer.stream()
        try:
            prompt = self._prompts.prompt(talk)
            with closing(engine.session()) as session:
                self._session, session.sequence.shares = session, True
                phase = session.prefill(prompt.ids, borders=prompt.borders)
                reply.prompt, reply.cached = len(prompt.ids), phase.shared_tokens
                stop = engine.tokenizer.stop_ids
                for token in session.decode(
                    max_tokens=max_tokens, stop=stop, sampling=self._sampling
                ):
                    reply.times.append(time.perf_counter())
                    reply.written += 1
                    reply.text += stream.push(token)
        except TriplepointError as error:
            reply.error = str(error)
        reply.ended = time.perf_counter()
        return reply

    def stop(self) -> None:
        """Stop the current reply, from any thread: see `ChatClient.stop`."""
        if self._session is not None:
            self._session.stop()

    def close(self) -> None:
        """Do nothing: sessions are closed with their requests."""
