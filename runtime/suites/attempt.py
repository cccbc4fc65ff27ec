"""Runs one attempt at a task: sets up its folder and an agent, asks, and checks the answers."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AgentError, EngineError, SettingError, TriplepointError
from ...tools import Workspace
from ...tools.groups import make_group
from ..agent.agent import Agent
from ..agent.events import RunFinished, ToolCallFinished, ToolCallStarted
from ..engine.sampling.settings import Sampling
from .checks import Judge, Outcome, run_check, snapshot
from .definition import WRITING, Question, Setting, Suite, Task
from .folders import folder_of
from .verdict import as_evidence

if TYPE_CHECKING:
    from ...tools import Tool
    from ..agent.result import Usage
    from ..engine.engine import Engine
    from ..remote import RemoteEngine

Row = dict[str, Any]
_SAMPLED = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")
_COUNTED = ("steps", "input_tokens", "cached_tokens", "output_tokens", "decode_s", "wall_s")


def attempt(
    suite: Suite,
    task: Task,
    setting: Setting,
    engine: Engine | RemoteEngine,
    repeat: int,
    *,
    judge: Judge | None = None,
    trace: Path | None = None,
    hidden: Sequence[Path] = (),
) -> Row:
    """Run a task's questions once; return the results row without the model's name.

    Tools do not see the files in `hidden`, which are those of the run itself.

    Reaching a limit or answering wrongly is a failure of the model: ``passed`` is false. A
    technical failure, such as a lost server, is the ``status`` ``error``, its text in ``error``.
    """
    row: Row = {"status": "answered", "passed": False, "questions": [], "usage": {}}
    began, groups = time.time(), suite.tools_of(task)
    try:
        with _folder(suite, task, hidden) as root, ExitStack() as stack:
            if trace is not None:
                trace.unlink(missing_ok=True)  # of a try that did not come to its end
            files = None if root is None else Workspace(root)
            if files is not None:
                files.hide(hidden)
            agent: Agent[Any] = Agent(
                engine,
                workspace=files,
                tools=_tools(groups, files),
                policy="yes" if {*groups} - {"find"} else "read-only",
                system=setting.system,
                max_steps=setting.max_steps,
                max_tokens=setting.max_tokens,
                timeout=setting.timeout,
                thinking=setting.thinking,
                thinking_tokens=setting.thinking_tokens,
                sampling=_sampling(engine, setting, repeat),
                output_type=task.answer_schema,
                trace=False if trace is None else trace,
            )
            stack.callback(let_go, agent)
            outcome = Outcome("", "", questions=[], results=[], root=root, judge=judge)
            if root is not None and any(
                c.kind == "changed" for q in task.questions for c in q.checks
            ):
                outcome.before = snapshot(root)
            talk = _Talk(agent, outcome)
            for question in task.questions:
                row["questions"].append(talk.ask(question))
                row["usage"] = talk.usage
                if talk.broken:
                    raise EngineError(talk.broken)
    except (TriplepointError, OSError) as error:
        row |= {"status": "error", "error": f"{type(error).__name__}: {error}"}
    answered = row["questions"]
    if row["status"] != "error":
        row["status"] = next((q["status"] for q in answered if q["status"] != "answered"), "ok")
        row["passed"] = all(question["passed"] for question in answered)
    return {**row, "started_s": began, "seconds": time.time() - began}


@contextmanager
def _folder(suite: Suite, task: Task, hidden: Sequence[Path]) -> Iterator[Path | None]:
    """Yield the task's folder: the original where nothing writes to it, else a temporary copy."""
    source = suite.folder_of(task)
    described = folder_of(source) if source is not None else None
    if described is None and source is not None and not source.is_dir():
        raise SettingError(f"task {task.id}: no such folder: {source}")
    copied = described is not None or task.files or WRITING & {*suite.tools_of(task)}
    if not copied:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="triplepoint-eval-") as temporary:
        root = Path(temporary, "work")
        if described is not None:
            described.write(root)
        elif source is not None:
            own = {os.path.realpath(path) for path in hidden}

            def left_out(folder: str, names: list[str]) -> list[str]:
                return [name for name in names if os.path.realpath(Path(folder, name)) in own]

            shutil.copytree(source, root, symlinks=True, ignore=left_out)
        else:
            root.mkdir()
        for name, text in task.files.items():
            path = root / name
            if not path.resolve().is_relative_to(root.resolve()):
                raise SettingError(f"task {task.id}: {name} is outside of its folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        yield root


def let_go(agent: Agent[Any]) -> None:
    """Close an agent and its session, to free its KV pages before garbage collection."""
    with suppress(AgentError, EngineError):  # of another server it has none
        agent.session.close()
    agent.close()


class _Talk:
    """Conversation of one attempt: asks its questions, and sums their usage."""

    def __init__(self, agent: Agent[Any], outcome: Outcome) -> None:
        self._agent = agent
        self._outcome = outcome
        self._questions: list[str] = []
        self._heard: list[str] = []
        self.usage: dict[str, Any] = dict.fromkeys(_COUNTED, 0) | {"ttft_s": None}
        self.broken = ""

    def ask(self, question: Question) -> Row:
        """Ask a question and check the answer; return its results row."""
        self._questions.append(question.ask)
        calls: list[tuple[str, bool]] = []
        arguments: dict[str, Any] = {}
        answer, status, message = "", "error", "the stream ended early"
        for event in self._agent.stream(question.ask):
            if isinstance(event, ToolCallStarted):
                arguments = event.arguments
            elif isinstance(event, ToolCallFinished):
                calls.append((event.name, event.error is None))
                self._heard.append(
                    as_evidence(event.result, event.error, arguments, self._questions)
                )
            elif isinstance(event, RunFinished):
                answer, status = event.result.answer, event.result.status
                message = event.result.message
                self._count(event.result.usage)
        if status == "error":
            self.broken = message
        outcome = self._outcome
        outcome.question, outcome.answer, outcome.calls = question.ask, answer, calls
        outcome.questions, outcome.results = self._questions, self._heard
        checks = [] if self.broken else [run_check(check, outcome) for check in question.checks]
        right = status == "answered" and all(check["passed"] for check in checks)
        row: Row = {"ask": question.ask, "answer": answer, "status": status, "passed": right}
        row |= {"message": message} if message else {}
        row |= {"group": question.group} if question.group is not None else {}
        return {**row, "checks": checks, "calls": [name for name, _ in calls]}

    def _count(self, usage: Usage) -> None:
        for name in _COUNTED:
            self.usage[name] += getattr(usage, name)
        if self.usage["ttft_s"] is None:
            self.usage["ttft_s"] = usage.ttft_s


def _tools(groups: list[Any], files: Workspace | None) -> list[Tool[..., Any]]:
    made: list[Tool[..., Any]] = []
    for name in groups:
        if files is None and name != "net":
            raise SettingError(f"the tools {name} need a folder; give the task a dir or files")
        made += make_group(name, files)
    return made


def _sampling(engine: Engine | RemoteEngine, setting: Setting, repeat: int) -> Sampling | None:
    """Return the setting's sampling; each repeat has its own seed."""
    given = {name: getattr(setting, name) for name in _SAMPLED}
    given = {name: value for name, value in given.items() if value is not None}
    if not given and setting.seed == 0 and repeat == 0:
        return None
    return Sampling(**given, seed=setting.seed + repeat)
