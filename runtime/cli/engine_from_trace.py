"""The engine that a recorded run had, as far as this machine has it."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ModelError, SettingError, TargetError, TraceError
from ...traces.find import resolve
from ...traces.reader import Trace
from ...traces.sanitize import printable
from .load_engine import load_engine
from .output import Output
from .traces import default_folder

if TYPE_CHECKING:
    from ...traces.events import RunStart
    from ..engine.engine import Engine
    from ..replay.workload import WorkItem
    from ..tokens.tokenizer import Tokenizer

NANO = "triplepoint-nano"


def folder_of(trace: Trace, header: RunStart, given: str | None) -> str | None:
    """The folder that a run's tools look at when it is done again.

    Somebody else's trace may name any folder: one outside of the current one is read only where
    that is said, or where the trace is among the user's own.

    Raises:
        SettingError: it has to be said.
    """
    if given is not None or not header.workspace:
        return given
    here, there = Path.cwd().resolve(), Path(header.workspace).resolve()
    own = trace.path is not None and Path(trace.path).resolve().is_relative_to(
        default_folder().resolve()
    )
    if own or there.is_relative_to(here):
        return header.workspace
    raise SettingError(
        f"{trace.path} was recorded in {printable(header.workspace)}, outside of {here}; look "
        f"there with --dir {printable(shlex.quote(header.workspace))}, or here with --dir ."
    )


def load_trace(name: str) -> Trace:
    """A trace by its file, the name of a run, ``last``, or the name of a run in the library."""
    from ..replay import examples

    if not Path(name).exists() and name in examples.names():
        return examples.load(name)
    try:
        path = resolve(name, default_folder())
    except TraceError as error:
        if len(Path(name).parts) > 1 or not examples.names():
            raise
        known = ", ".join(examples.names())
        raise TraceError(f"{error}; the library has {known}") from None
    return Trace.load(path)


def engine_of(
    header: RunStart, args: argparse.Namespace, output: Output, context: int | None
) -> tuple[Engine, list[str]]:
    """The engine that the run had, or the arguments ask for; and notes on what it has not.

    Args:
        context: positions, where the arguments name none.
    """
    from ..physics.machine import usable_cores

    asked = argparse.Namespace(**vars(args))
    asked.model = args.model or model_of(header)
    # More threads than cores would wait for each other at every barrier.
    asked.threads = args.threads or min(header.threads, usable_cores()) or None
    asked.kv = args.kv or header.kv or None
    asked.context = getattr(args, "context", None) or context
    if args.target:
        return load_engine(asked, output), []
    asked.target = header.target or None
    try:
        return load_engine(asked, output), []
    except TargetError as error:
        asked.target = None
        return load_engine(asked, output), [str(error)]


def positions_for(header: RunStart, works: Sequence[WorkItem], model: str | None) -> int | None:
    """Positions to load the engine with: the recorded ones; for another model what is needed."""
    from ..engine.model.loaded_model import DEFAULT_CONTEXT
    from ..replay.workload import positions

    needed = positions(works)
    if model is None:
        return header.config.get("context") or needed
    return needed if needed > DEFAULT_CONTEXT else None


def tokenizer_of(header: RunStart) -> Tokenizer:
    """Return the tokenizer of a run's model; a ModelError where its file is not here any more."""
    from ..engine.engine import resolve_model
    from ..gguf.open import open_gguf
    from ..tokens.tokenizer import Tokenizer

    with open_gguf(resolve_model(model_of(header))) as gguf:
        if gguf.sha256() != header.model.sha256:
            raise ModelError(f"{gguf.path} is not the recorded {header.model.name}: another hash")
        return Tokenizer.from_gguf(gguf)


def model_of(header: RunStart) -> str:
    """The recorded file if it is still there, else the recorded name."""
    path = header.model.path
    if path.startswith("synthetic:") or (path and os.path.exists(path)):
        return path
    return "nano" if header.model.name == NANO else header.model.name
