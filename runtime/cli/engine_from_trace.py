"""Loads the engine of a recorded run, as far as this machine can."""

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
    """Return the folder that the tools of a replayed run read.

    A foreign trace may name any folder: one outside the current folder is read only if `given`
    names it, or if the trace is in the user's own folder of traces.

    Raises:
        SettingError: the folder is outside and `given` is None.
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
    """Load a trace by file, run name, ``last``, or name in the library."""
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
    """Load the engine of a recorded run, as `args` override it; return notes on what differs.

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
    """Return the context to load: the recorded one; for another model, what the work needs."""
    from ..engine.model.loaded_model import DEFAULT_CONTEXT
    from ..replay.workload import positions

    needed = positions(works)
    if model is None:
        return header.config.get("context") or needed
    return needed if needed > DEFAULT_CONTEXT else None


def tokenizer_of(header: RunStart) -> Tokenizer:
    """Return the tokenizer of a run's model; raise ModelError if its file is gone."""
    from ..engine.engine import resolve_model
    from ..gguf.open import open_gguf
    from ..tokens.tokenizer import Tokenizer

    with open_gguf(resolve_model(model_of(header))) as gguf:
        if gguf.sha256() != header.model.sha256:
            raise ModelError(f"{gguf.path} is not the recorded {header.model.name}: another hash")
        return Tokenizer.from_gguf(gguf)


def model_of(header: RunStart) -> str:
    """Return the recorded model file if it still exists, else the recorded name."""
    path = header.model.path
    if path.startswith("synthetic:") or (path and os.path.exists(path)):
        return path
    return "nano" if header.model.name == NANO else header.model.name
