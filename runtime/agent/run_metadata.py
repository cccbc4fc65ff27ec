"""The header of an agent's trace: everything needed to do the run again."""

from __future__ import annotations

import contextlib
import functools
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...traces import log, retention
from ...traces.events import MachineRecord, ModelRecord, RunStart
from ...traces.reader import Trace
from ...traces.writer import new_run_id
from ..files import make_folder
from ..hub.progress import size_text

if TYPE_CHECKING:
    from ..inference.engine import Engine
    from .agent import Agent
    from .remote import RemoteEngine

_PACKAGES = ("triplepoint", "llvmlite", "numpy", "tokenizers", "llguidance", "jinja2")


def begin_trace(path: str | Path | bool | None, *, redact: bool) -> Trace:
    """An empty trace.

    Args:
        path: its file; a new one in the user's state folder if None or True, none at all if False.
        redact: write neither text nor token ids to it.

    Raises:
        TraceError: the file cannot be written.
    """
    if path is False:
        return Trace()
    run = new_run_id()
    if path is None or path is True:
        from platformdirs import user_state_path

        path = user_state_path("triplepoint", appauthor=False) / "traces" / f"{run}.jsonl"
        with contextlib.suppress(OSError):  # told by the file that is then not there
            make_folder(path.parent)
        _make_room(path.parent)
    return Trace.to_file(path, run=run, redact=redact)


def _make_room(folder: Path) -> None:
    """Remove the oldest traces of the state folder where they are too large together; say so."""
    most = retention.limit()
    if most is None:
        return
    removed = retention.enforce(folder, most)
    if removed.count:
        traces = f"{removed.count:,} trace{'s' * (removed.count != 1)}"
        log.warning(
            f"triplepoint: removed the oldest {traces} ({size_text(removed.nbytes)}): the traces "
            f"in {folder} may take {size_text(most)} together; {retention.LIMIT}=SIZE or =off "
            "allows more",
            **{"removed_traces": removed.count, "removed_bytes": removed.nbytes},
        )


def prepare(agent: Agent[Any]) -> None:
    """Find out now what a header says and what takes its time: nobody waits for an answer yet."""
    _ = agent.engine.model.sha256
    _regime_map(agent)
    _versions()


def run_start(agent: Agent[Any], task: str) -> RunStart:
    """The header of the conversation that begins with ``task``."""
    engine, config = agent.engine, agent.config
    model = engine.model
    return RunStart(
        task=task,
        workspace="" if agent.workspace is None else str(agent.workspace.resolve()),
        model=ModelRecord(
            name=model.name,
            sha256=model.sha256,
            architecture=model.architecture,
            quant=model.quant,
            parameters=model.parameters,
            path=str(model.path),
        ),
        target=str(engine.target),
        threads=engine.threads,
        kv=engine.kv,
        machine=_machine(engine),
        config={
            "max_steps": config.max_steps,
            "max_tokens": config.max_tokens,
            "timeout": config.timeout,
            "compact": config.compact,
            "repetition_stop": config.repetition_stop,
            "result_tokens": agent.results.budget,
            "system": config.system,
            "options": dict(config.options),
            **agent.conversation.settings(),
            "output": config.output,
            "policy": agent.policy.describe(),
            "notes": agent.notes,
        },
        versions=versions(),
        tuning=_tuning(engine),
        tools=agent.tools.schemas(),
        regime_map=_regime_map(agent),
    )


def _regime_map(agent: Agent) -> dict[str, Any]:
    """Empty for an engine that has no cost model, such as one on another machine."""
    if getattr(agent.engine, "cost", None) is None:
        return {}
    from ..inference.regime_map import regime_map

    return regime_map(agent.session)


def _tuning(engine: Engine | RemoteEngine) -> dict[str, Any]:
    """How passes are run, and why; empty for an engine on another machine."""
    tuning = getattr(engine, "tuning", None)
    return {} if tuning is None else tuning.describe()


def _machine(engine: Engine | RemoteEngine) -> MachineRecord:
    machine = engine.machine
    return MachineRecord(cpu=machine.cpu, cores=machine.cores, profile=machine.as_dict())


def versions() -> dict[str, str]:
    """Package to version; ``kernels`` is a hash of what the kernels are generated from."""
    return dict(_versions())


@functools.cache
def _versions() -> dict[str, str]:
    from ...jit.compile import source_hash

    found = {"kernels": source_hash()[:12]}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a checkout, or an optional one
            continue
    return found
