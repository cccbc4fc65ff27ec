"""Every public entry of the API, with hostile arguments: it works, or the error is one of ours.

The entries are found by introspection: a new public name or method fails here until `GOOD` has an
argument for each parameter that it must be given, or `EXEMPT` says why it is left out.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import triplepoint
from triplepoint import (
    Agent,
    CommandTools,
    EditTools,
    Engine,
    FetchTools,
    FileTools,
    FindTools,
    Policy,
    RemoteEngine,
    Rule,
    Sampling,
    SavedConversation,
    Session,
    Tool,
    ToolSet,
    Trace,
    TriplepointError,
    open_conversation,
)
from triplepoint.traces.events import MessageEvent

RECORD = "a record that the package makes and hands out; nobody is asked for one"
RUNS = "between an agent, its runs and the command line; docs/api.md has what callers use"
EXEMPT = {
    "AgentEvent": "a union of types for annotations",
    "Notice": RECORD,
    "PhaseEvent": RECORD,
    "PhaseFinished": RECORD,
    "PermissionRequest": RECORD,
    "RunFinished": RECORD,
    "RunResult": RECORD,
    "RunStarted": RECORD,
    "TextDelta": RECORD,
    "ThinkingDelta": RECORD,
    "ToolCallFinished": RECORD,
    "ToolCallStarted": RECORD,
    "Usage": RECORD,
    "replay.PerfPhase": RECORD,
    "replay.PerfReport": RECORD,
    "replay.PhaseCheck": RECORD,
    "replay.VerifyReport": RECORD,
    "replay.predict": "it measures a calibration, which takes minutes",
    "Engine": "Engine.load makes them",
    "Engine.close": "ends the engine of all these tests; test_what_is_closed has it",
    "SavedConversation": "open_conversation makes them",
    "Session": "Engine.session makes them",
    "Agent.resume": RUNS,
    "Tool.preview": "takes what Tool.validate gave",
    "Tool.run": "takes what Tool.validate gave",
    "Trace": "Trace.load and Trace.to_file make them; of events it is a plain list",
    "Policy.decide": "called by a run with validated arguments: tests/tools/test_hostile_arguments",
    "Policy.recorded": "of the calls of a parsed trace, for a replay",
    "Policy.refused": "called by an agent with its own tools",
    "Policy.hides": "called by the file tools with themselves and a path that they found",
    "Rule.fits": "called by a policy with validated arguments",
    "Sampling.check": "called by an agent with the size of its vocabulary",
    "Sampling.over": "called by an agent with the engine's sampling",
}


class _OwnError(Exception):
    """Of the caller's object: as one from a callback, it may come back as it is."""


class _Raises:
    """An object that cannot be looked at."""

    def _no(self, *_: object) -> Any:
        raise _OwnError("hostile")

    __str__ = __repr__ = __fspath__ = __len__ = __iter__ = __bool__ = __float__ = __index__ = _no
    __eq__ = __hash__ = __int__ = _no  # pyright: ignore[reportAssignmentType]


def _hostile(folder: Path) -> dict[str, Any]:
    """Values by what they are; files lie in `folder`."""
    nano = Path(triplepoint.__file__).parent / "runtime" / "nano" / "nano.gguf"
    (folder / "text.txt").write_text("no model, no trace, no policy\n")
    (folder / "cut.gguf").write_bytes(nano.read_bytes()[:5000] if nano.exists() else b"GGUF\x03")
    (folder / "empty").touch()
    (folder / "sub").mkdir()
    with (folder / "text.txt").open() as closed:
        pass
    return {
        "none": None,
        "true": True,
        "three": 3,
        "negative": -1,
        "huge": 2**80,
        "nan": math.nan,
        "infinity": math.inf,
        "empty": "",
        "blank": " ",
        "word": "word",
        "surrogate": "\ud800",
        "nul": "a\0b",
        "long": "x" * 300,
        "bytes": b"x",
        "list": [None],
        "mapping": {1: 2},
        "object": object(),
        "raises": _Raises(),
        "closed file": closed,
        "folder": folder / "sub",
        "folder as text": str(folder / "sub"),
        "missing": folder / "missing" / "file",
        "text file": folder / "text.txt",
        "text file as text": str(folder / "text.txt"),
        "cut model": folder / "cut.gguf",
        "empty file": folder / "empty",
        "below a file": folder / "text.txt" / "x",
    }


def _callables() -> dict[str, Callable[..., Any]]:
    """Every public callable by its dotted name; methods unbound."""
    found: dict[str, Callable[..., Any]] = {}

    def add(name: str, value: Any) -> None:
        if name in EXEMPT and not isinstance(value, type):
            return
        if isinstance(value, ModuleType):
            for inner in value.__all__:
                add(f"{name}.{inner}", getattr(value, inner))
        elif not isinstance(value, type):
            if callable(value):
                found[name] = value
        elif not issubclass(value, BaseException):
            if name not in EXEMPT:
                found[name] = value
            elif EXEMPT[name] == RECORD:
                return
            for method in dir(value):
                ours = any(
                    method in vars(base)
                    for base in value.__mro__
                    if base.__module__.startswith("triplepoint.")
                )
                if ours and not method.startswith("_") and callable(getattr(value, method)):
                    add(f"{name}.{method}", getattr(value, method))

    for name in triplepoint.__all__:
        add(name, getattr(triplepoint, name))
    return found


CALLABLES = _callables()


def _plain(text: str) -> str:
    """Say it.

    Args:
        text: What.
    """
    return text


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The embedded model, for all."""
    with Engine.load("nano", context=256) as engine:
        yield engine


@pytest.fixture
def place(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What good arguments are made of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("hi\n")
    (tmp_path / "policy.toml").write_text("")
    with Trace.to_file(tmp_path / "run.jsonl") as trace:
        trace.write(MessageEvent(role="user", content="Hello", turn=1))
    return SimpleNamespace(engine=engine, root=tmp_path, work=work)


def _agent(place: SimpleNamespace) -> Agent:
    return Agent(place.engine, trace=False, max_tokens=2, max_steps=1)


def _session(place: SimpleNamespace) -> Session:
    session = place.engine.session()
    session.prefill([1, 2, 3])
    return session


SELVES: dict[type, Callable[[SimpleNamespace], Any]] = {
    Agent: _agent,
    CommandTools: lambda place: CommandTools(place.work, max_seconds=5),
    EditTools: lambda place: EditTools(place.work),
    Engine: lambda place: place.engine,
    FetchTools: lambda place: FetchTools(max_seconds=1),
    FileTools: lambda place: FileTools(place.work),
    FindTools: lambda place: FindTools(place.work),
    SavedConversation: lambda place: open_conversation("kept"),
    Policy: lambda place: Policy(),
    RemoteEngine: lambda place: RemoteEngine("http://127.0.0.1:1/v1", model="m"),
    Rule: lambda place: Rule("read_file", "allow"),
    Sampling: lambda place: Sampling(),
    Session: _session,
    Tool: lambda place: Tool(_plain),
    ToolSet: lambda place: ToolSet([_plain]),
    Trace: lambda place: Trace.to_file(place.root / "new.jsonl"),
}
"""An object of each class, to call its methods."""

GOOD: dict[str, Callable[[SimpleNamespace], Any]] = {
    "Agent.run.task": lambda place: "Hello",
    "Agent.run_async.task": lambda place: "Hello",
    "Agent.stream.task": lambda place: "Hello",
    "Agent.stream_async.task": lambda place: "Hello",
    "Agent.load_history.turns": lambda place: [("a", "b")],
    "Agent.as_tool.name": lambda place: "helper",
    "Agent.as_tool.description": lambda place: "Helps.",
    "Engine.embed.texts": lambda place: [[1, 2]],
    "Engine.draft_head.vocabulary": lambda place: 32768,
    "Session.decode.max_tokens": lambda place: 2,
    "Session.save.folder": lambda place: place.root / "saved",
    "Session.truncate.n": lambda place: 1,
    "Session.take_over.total": lambda place: 1,
    "Engine.load_session.folder": lambda place: place.root / "saved",
    "SavedConversation.resume.agent": _agent,
    "SavedConversation.save.agent": _agent,
    "Policy.load.path": lambda place: place.root / "policy.toml",
    "Rule.tool": lambda place: "read_file",
    "Rule.action": lambda place: "allow",
    "Tool.function": lambda place: _plain,
    "ToolSet.get.name": lambda place: "_plain",
    "Trace.load.path": lambda place: place.root / "run.jsonl",
    "Trace.to_file.path": lambda place: place.root / "other.jsonl",
    "Trace.write.event": lambda place: MessageEvent(role="user", content="x", turn=1),
    "RemoteEngine.base_url": lambda place: "http://127.0.0.1:1/v1",
    "map_rows.agent_factory": lambda place: lambda engine, row: _agent(place),
    "map_rows.rows": lambda place: [],
    "open_conversation.name": lambda place: "named",
    "CommandTools.run_command.command": lambda place: ["true"],
    "FindTools.find.pattern": lambda place: "*",
    "FileTools.search.pattern": lambda place: "hi",
    "FileTools.read_file.path": lambda place: "a.txt",
    "replay.branch.turn": lambda place: 1,
    # by the name of the parameter
    "agent": _agent,
    "arguments": lambda place: {"text": "x"},
    "content": lambda place: "x",
    "engine": lambda place: place.engine,
    "ids": lambda place: [1, 2],
    "new": lambda place: "ho",
    "old": lambda place: "hi",
    "path": lambda place: "a.txt",
    "root": lambda place: place.work,
    "to": lambda place: "b.txt",
    "trace": lambda place: Trace.load(place.root / "run.jsonl"),
    "url": lambda place: "http://127.0.0.1:1/",
}


def _required(name: str, place: SimpleNamespace) -> dict[str, Any]:
    """Good arguments for all parameters that have no default."""
    given = {}
    for key, parameter in inspect.signature(CALLABLES[name]).parameters.items():
        if key == "self" or parameter.default is not parameter.empty:
            continue
        make = GOOD.get(f"{name}.{key}") or GOOD.get(key)
        assert make is not None, f"GOOD has nothing for {name}.{key}"
        given[key] = make(place)
    return given


def _use(name: str, self: Any, given: dict[str, Any]) -> None:
    """Call it, and use what it gives as far as a caller would."""
    function = CALLABLES[name] if self is None else getattr(self, name.rpartition(".")[2])
    positional = [
        given.pop(key)
        for key, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.POSITIONAL_ONLY and key in given
    ]
    result = function(*positional, **given)
    if inspect.iscoroutine(result):
        asyncio.run(result)
    elif isinstance(result, AsyncIterator):

        async def read() -> None:
            async for _ in result:
                pass

        asyncio.run(read())
    elif isinstance(result, Iterator):
        list(islice(result, 20))
    elif hasattr(result, "close"):
        result.close()


def _self(name: str, place: SimpleNamespace) -> Any:
    """What the method is called on; None for functions, constructors and class methods."""
    owner = getattr(triplepoint, name.partition(".")[0])
    method = name.partition(".")[2]
    if not method or isinstance(owner, ModuleType):
        return None
    if isinstance(inspect.getattr_static(owner, method), classmethod):
        return None
    return SELVES[owner](place)


def _end(self: Any) -> None:
    if isinstance(self, Agent | SavedConversation | RemoteEngine | Trace):
        self.close()


def _fault(error: BaseException) -> str:
    """What is wrong with an error; empty for one of ours that can be read."""
    if isinstance(error, _OwnError):
        return ""
    if not isinstance(error, TriplepointError):
        frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
        at = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[:-4:-1])
        return f"{type(error).__name__}: {str(error)[:120]} ({at})"
    message = str(error)
    if not 0 < len(message) < 2000:
        return f"a message of {len(message)} characters"
    try:
        message.encode()
    except UnicodeEncodeError:
        return f"a message that cannot be printed: {message!a:.200}"
    return ""


@pytest.mark.filterwarnings("ignore::pydantic.json_schema.PydanticJsonSchemaWarning")
@pytest.mark.parametrize("name", CALLABLES)
def test_every_entry_with_every_argument(name: str, place: SimpleNamespace) -> None:
    """One hostile argument at a time, the others good; and good ones work or are refused."""
    faults = []
    hostile = _hostile(place.root)
    parameters = {k: p for k, p in inspect.signature(CALLABLES[name]).parameters.items()}
    parameters.pop("self", None)
    cases: list[tuple[str, str]] = [("", "")]
    for key, parameter in parameters.items():
        flag = parameter.annotation in ("bool", "bool | None")  # anything is true or false
        cases += [(key, what) for what in (("object", "raises") if flag else hostile)]
    self, given, used = _self(name, place), _required(name, place), False
    for key, what in cases:
        if used:  # what was refused has changed nothing, so that it can be called once more
            _end(self)
            self, given = _self(name, place), _required(name, place)
        used = False
        try:
            _use(name, self, given | ({key: hostile[what]} if key else {}))
            used = True
        except Exception as error:
            if fault := _fault(error):
                faults.append(f"{key}={what}: {fault}")
    _end(self)
    assert not faults, "\n" + "\n".join(faults)


def test_what_is_closed(place: SimpleNamespace) -> None:
    """A closed engine, trace or kept session says so, or does what needs none; it never crashes."""
    with Engine.load("nano", context=64) as engine:
        session, agent = engine.session(), Agent(engine, trace=False)
        session.prefill([1, 2, 3])
    trace = Trace.to_file(place.root / "closed.jsonl")
    trace.close()
    kept = open_conversation("closed")
    kept.close()
    event = MessageEvent(role="user", content="x", turn=1)
    uses: list[Callable[[], Any]] = [
        *(engine.close, engine.session, lambda: engine.load_session(place.root)),
        *(lambda: session.prefill([1]), lambda: list(session.decode(max_tokens=2))),
        *(session.fork, lambda: session.truncate(1), lambda: session.logits_for([1]), session.stop),
        *(lambda: session.save(place.root / "saved"), lambda: agent.run("Hello"), agent.fork),
        *(
            agent.prefill_system,
            agent.compact,
            agent.undo,
            agent.close,
            lambda: Agent(engine, trace=False),
        ),
        *(trace.close, lambda: trace.write(event), lambda: trace.to_dataframe()),
        *(kept.close, lambda: kept.save(agent), lambda: kept.resume(agent)),
    ]
    faults = []
    for number, use in enumerate(uses):
        try:
            use()
        except Exception as error:
            faults += [f"use {number}: {fault}"] if (fault := _fault(error)) else []
    assert not faults, "\n" + "\n".join(faults)


def test_exemptions_are_of_this_version() -> None:
    """Each names something that is there, and that would else be called."""
    for name in EXEMPT:
        value: Any = triplepoint
        for part in name.split("."):
            value = getattr(value, part)
        assert name not in CALLABLES
