"""The header of an agent's trace: everything needed to repeat the run."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import user_folder
from ...errors import TraceError
from ...traces import log, retention
from ...traces.events import MachineRecord, ModelRecord, RunStart
from ...traces.reader import Trace
from ...traces.writer import new_run_id
from ..config import read_settings
from ..files import make_folder
from .config import is_remote
from .harness.merged import Harness
from .local_conversation import LocalConversation

if TYPE_CHECKING:
    from ...tools import Policy, ToolSet, Workspace
    from ..engine.engine import Engine
    from ..remote import RemoteEngine
    from .config import AgentConfig
    from .conversation import Conversation
    from .run_context import Progress
    from .structured_output import OutputType
    from .tool_output import ToolOutputStore

_PACKAGES = ("triplepoint", "llvmlite", "numpy", "tokenizers", "llguidance", "jinja2")


def begin_trace(path: str | Path | bool | None, *, redact: bool) -> Trace:
    """Start an empty trace.

    Args:
        path: its file; a new one in the user's state folder if None or True, none at all if False.
            Where the state folder takes none, a warning says why, and the run continues.
        redact: write neither text nor token ids to it.

    Raises:
        TraceError: the named file cannot be written, or the limit of the state folder is no size.
        SettingError: the config file is wrong.
    """
    if path is False:
        return Trace()
    run = new_run_id()
    if path is not None and path is not True:
        return Trace.to_file(path, run=run, redact=redact)
    file = user_folder("state") / "traces" / f"{run}.jsonl"
    settings = {key: setting.value for key, setting in read_settings().items()}
    limit = retention.limit(default=settings.get("trace_keep_bytes", retention.MAX_BYTES))
    try:
        if not file.parent.is_dir():
            make_folder(file.parent)
        _make_room(file.parent, limit, settings.get("trace_keep_days"))
        trace = Trace.to_file(file, run=run, redact=redact)
    except (OSError, TraceError) as error:
        _warn(error)
        return Trace()
    trace.on_loss = _warn
    return trace


def _warn(error: OSError | TraceError) -> None:
    why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
    log.warning(f"triplepoint: no trace is written (set XDG_STATE_HOME to another folder): {why}")


def _make_room(folder: Path, limit: int | None, days: float | None) -> None:
    """Remove traces of the state folder that are too old or exceed its limit; report removals."""
    removed = retention.enforce(folder, limit, days)
    if removed.count:
        from ..hub.progress import size_text  # most runs remove nothing

        traces = f"{removed.count:,} trace{'s' * (removed.count != 1)}"
        log.warning(
            f"triplepoint: removed the oldest {traces} ({size_text(removed.nbytes)}): traces in "
            f"{folder} may take {size_text(limit or 0)} in total; set another limit with "
            f"{retention.LIMIT}=SIZE or trace_keep_bytes in config.toml, or turn it off with off",
            **{"removed_traces": removed.count, "removed_bytes": removed.nbytes},
        )


@dataclass
class RunSetup:
    """The components of an agent's runs; `Agent` sets those that are no arguments."""

    engine: Engine | RemoteEngine
    config: AgentConfig
    policy: Policy
    """The policy that allows or denies calls."""
    output: OutputType[Any] | None
    """The type of the answers; None for text."""
    files: Workspace | None
    """Workspace of the file tools; None without one."""
    on_progress: Progress | None = None
    """Called during a long prefill."""
    conversation: Conversation[Any] = field(init=False)
    tools: ToolSet = field(init=False)
    """The tools that the model may call."""
    results: ToolOutputStore = field(init=False)
    """Store of tool results, truncated to the token budget."""
    harness: Harness = field(init=False)
    """The policies around the model."""

    @property
    def workspace(self) -> str:
        """Return the absolute path of the file tools' folder; empty without one."""
        return "" if self.files is None else str(self.files.root.resolve())

    @property
    def notes(self) -> list[str]:
        """Return notes on workarounds for gaps in the model file or a tool's schema."""
        notes = [*self.conversation.notes, *([self.harness.note] if self.harness.note else [])]
        notes += dict.fromkeys(n for one in self.tools for n in getattr(one.group, "notes", ()))
        if refused := self.policy.refused(self.tools):
            unattended = " and nobody can be asked" * (self.policy.mode == "ask")
            notes.append(
                f"the policy is {self.policy.mode}{unattended}, so no call of {', '.join(refused)} "
                "will run"
            )
        return notes


def prepare(setup: RunSetup) -> None:
    """Compute and cache the slow parts of the trace header before the first question."""
    _ = setup.engine.model.sha256
    _regime_map(setup)
    _versions()


def run_start(setup: RunSetup, task: str) -> RunStart:
    """Build the trace header of a conversation that begins with ``task``."""
    engine, config = setup.engine, setup.config
    return start_on(
        engine,
        task=task,
        workspace=setup.workspace,
        config={
            "max_steps": config.max_steps,
            "max_tokens": config.max_tokens,
            "thinking_tokens": config.thinking_tokens,
            "thinking_seconds": config.thinking_seconds,
            "timeout": config.timeout,
            "compact": config.compact,
            "repetition_stop": config.repetition_stop,
            "result_tokens": setup.results.budget,
            "system": config.system,
            "options": dict(config.options),
            **setup.conversation.settings(),
            "output": config.output,
            "policy": setup.policy.describe(),
            "harness": setup.harness.settings,
            "notes": setup.notes,
        },
        tools=setup.tools.schemas(),
        regime_map=_regime_map(setup),
    )


def start_on(engine: Engine | RemoteEngine, **given: Any) -> RunStart:
    """Build a trace header from the engine's fields; `given` are its other fields."""
    model, machine = engine.model, engine.machine
    loaded = None if is_remote(engine) else engine.loaded
    sizes = ("kv_bytes", "state_bytes", "experts", "experts_used")
    return RunStart(
        model=ModelRecord(
            name=model.name,
            sha256=model.sha256,
            architecture=model.architecture,
            quant=model.quant,
            parameters=model.parameters,
            path=str(model.path),
            **({name: getattr(loaded.cost, name) for name in sizes} if loaded else {}),
        ),
        target=str(engine.target),
        threads=engine.threads,
        kv=engine.kv,
        machine=MachineRecord(cpu=machine.cpu, cores=machine.cores, profile=machine.as_dict()),
        versions=versions(),
        tuning=loaded.describe() if loaded else {},
        **given,
    )


def write_continuation(
    trace: Trace, setup: RunSetup, task: str = "", *, parent: str, step: str | None = None
) -> None:
    """Start the trace of a conversation that continues another, and copy its history.

    Args:
        trace: an empty one.
        setup: holds the conversation.
        task: the next question, where it is known.
        parent: run of the conversation that is continued.
        step: step of the parent to continue from, as in "2.1"; None: its end.
    """
    start = run_start(setup, task)
    start.parent, start.parent_step = parent, step
    trace.write(start)
    if setup.conversation.messages:
        trace.write(setup.conversation.history().event())


def _regime_map(setup: RunSetup) -> dict[str, Any]:
    """Return the engine's regime map; empty for a remote engine."""
    if not isinstance(setup.conversation, LocalConversation):
        return {}
    from ..engine.regime_map import regime_map

    return regime_map(setup.conversation.session)


def versions() -> dict[str, str]:
    """Return package versions; ``kernels`` is a hash of the kernels' sources."""
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
