"""Chooses the next row of a worker: routing, retries, and dead letters.

Rows that share a folder, or how they begin, are a group. A worker stays with a group while it has
rows, then takes the one that was begun longest ago, or not at all: so an idle worker helps where
others are behind.

A try that failed is repeated after a pause. Rows that were on a worker when it died are repeated
one at a time, alone on their worker and elsewhere if possible: so the one that kills workers is
found and set aside, and takes no others with it. So are rows that lost their server several times.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from .rows import Row

_LONGEST_PAUSE = 30.0


@dataclass(frozen=True)
class Limits:
    """Limits on the tries of a row."""

    attempts: int = 3
    """Failed tries after which it is dead-lettered."""
    deaths: int = 5
    """Deaths of workers with it after which it is dead-lettered."""
    pause_s: float = 0.5
    """Seconds before the second try; doubled with each further one."""


@dataclass(eq=False)
class Task:
    """A row in progress; it is on one worker at a time."""

    row: Row
    tries: int = 0
    """Number of tries begun; each has a trace of its own."""
    failures: list[str] = field(default_factory=list)
    """Error messages of the tries that failed."""
    deaths: int = 0
    """Number of workers that died while they ran it."""
    drops: int = 0
    """Number of times that its server went away while it ran."""
    avoid: str = ""
    """Name of the worker that had it last."""

    @property
    def model(self) -> str | None:
        """Model of the row."""
        return self.row.model


@dataclass(eq=False)
class WorkerState:
    """The state of a worker for the dispatcher."""

    name: str
    slots: int = 1
    one_model: bool = True
    """Whether it holds one model at a time and changes it only when idle; else it runs any
    model."""
    model: str | None = ""
    """Model that it holds, None for the run's default; empty: none yet."""
    tasks: set[Task] = field(default_factory=set)
    group: Hashable = None
    """Group of the row that it began last; None: no group to stay with."""

    @property
    def free(self) -> bool:
        """Whether it can take one more row."""
        alone = any(task.deaths for task in self.tasks)
        return len(self.tasks) < self.slots and not alone

    def takes(self, model: str | None) -> bool:
        """Return whether it can run rows of this model now."""
        return not self.one_model or not self.tasks or self.model == model


class Dispatcher:
    """The pending rows and their workers.

    Args:
        rows: to be done, in the order in which they are begun where nothing else matters.

    Attributes:
        left: rows that are not finished.
        retries: tries beyond the first of each.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or Limits()
        self.left = self.retries = 0
        self._clock = clock
        self._groups: dict[str | None, OrderedDict[Hashable, deque[Task]]] = {}
        """Groups with pending rows by model: those that were begun longest ago first."""
        self._suspects: deque[Task] = deque()
        self._later: list[tuple[float, int, Task]] = []
        self._ticket = itertools.count()
        for row in rows:
            self._queue(Task(row))
            self.left += 1

    # --- what next

    def next_for(self, worker: WorkerState) -> Task | None:
        """Return the next row for this worker, or None."""
        if not worker.free:
            return None
        self.wake()
        task = self._suspect_for(worker) if not worker.tasks else None
        task = task or self._grouped(worker)
        if task is None:
            return None
        task.tries += 1
        self.retries += task.tries > 1
        worker.model = task.model
        worker.tasks.add(task)
        return task

    def wake(self) -> None:
        """Requeue the rows whose pause is over, even while no worker asks for one."""
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            task = heapq.heappop(self._later)[2]
            self._queue(task, first=True)
            if not task.deaths:
                self._groups[task.model].move_to_end(task.row.affinity, last=False)

    def wait_s(self, limit: float) -> float:
        """Return the seconds until a row's pause ends, at most `limit`."""
        if not self._later:
            return limit
        return min(limit, max(0.0, self._later[0][0] - self._clock()))

    # --- what came of it

    def finish(self, worker: WorkerState, task: Task) -> None:
        """Record a row as done."""
        worker.tasks.discard(task)
        self.left -= 1

    def fail(self, worker: WorkerState, task: Task, why: str) -> bool:
        """Retry a failed row later; return True where it is dead-lettered instead."""
        if len(task.failures) + 1 >= self.limits.attempts:
            return self._set_aside(worker, task, why)
        task.failures.append(why)
        self._release(worker, task)
        pause = min(_LONGEST_PAUSE, self.limits.pause_s * 2 ** (len(task.failures) - 1))
        heapq.heappush(self._later, (self._clock() + pause, next(self._ticket), task))
        return False

    def lose(self, worker: WorkerState, task: Task, why: str) -> bool:
        """Retry a row alone after its worker died; return True where it is dead-lettered."""
        task.deaths += 1
        if task.deaths >= self.limits.deaths:
            return self._set_aside(worker, task, why)
        self._release(worker, task)
        self._suspects.append(task)
        return False

    def drop(self, worker: WorkerState, task: Task, why: str) -> bool:
        """Retry a row whose server went away; return True where it is dead-lettered.

        After as many times as tries may fail it is a death each time, so the row is tried alone.
        """
        task.drops += 1
        if task.drops >= self.limits.attempts:
            times = f"its server went away {task.drops} times while it worked on this row"
            if self.lose(worker, task, f"{times}: {why}"):
                return True
            self._uncount(task)
            return False
        self.give_back(worker, task)
        return False

    def give_back(self, worker: WorkerState, task: Task) -> None:
        """Requeue a row whose server accepts no rows now, without counting a try."""
        self._release(worker, task)
        self._uncount(task)
        self._queue(task, first=True)

    def dismiss(self, worker: WorkerState) -> None:
        """Requeue all rows of a worker that was given up, without counting a try."""
        for task in sorted(worker.tasks, key=lambda task: task.row.number):
            self.give_back(worker, task)

    def _uncount(self, task: Task) -> None:
        """Undo the count of a row's last try."""
        self.retries -= task.tries > 1
        task.tries -= 1

    def _release(self, worker: WorkerState, task: Task) -> None:
        """Take a row from its worker, which then moves on to another group.

        The row may be why its server went away (a proxy's 504, say): others must not wait for it.
        """
        worker.tasks.discard(task)
        worker.group = None
        task.avoid = worker.name

    def _set_aside(self, worker: WorkerState, task: Task, why: str) -> bool:
        task.failures.append(why)
        self.finish(worker, task)
        return True

    # --- where rows wait

    def _queue(self, task: Task, *, first: bool = False) -> None:
        if task.deaths:
            self._suspects.append(task)
            return
        groups = self._groups.setdefault(task.model, OrderedDict())
        tasks = groups.setdefault(task.row.affinity, deque())
        (tasks.appendleft if first else tasks.append)(task)

    def _suspect_for(self, worker: WorkerState) -> Task | None:
        for position, task in enumerate(self._suspects):
            if task.avoid != worker.name:
                del self._suspects[position]
                return task
        # All of them were here last: there may be no other worker.
        return self._suspects.popleft() if self._suspects else None

    def _grouped(self, worker: WorkerState) -> Task | None:
        """Return a row of the worker's group, else of another group, else of another model."""
        for model in sorted(self._groups, key=lambda model: model != worker.model):
            if worker.takes(model):
                groups = self._groups[model]
                group = worker.group if worker.group in groups else next(iter(groups))
                tasks = groups.pop(group)
                again = len(tasks) > 1 and tasks[0].avoid == worker.name
                task = tasks.pop() if again else tasks.popleft()
                if tasks:
                    groups[group] = tasks
                elif not groups:
                    del self._groups[model]
                worker.group = group
                return task
        return None
