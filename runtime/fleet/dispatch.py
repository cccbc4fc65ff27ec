"""Which row a worker does next: routing, retries, stealing, rows that are set aside.

Rows that share a folder, or how they begin, are a group. A worker does its own groups, then takes
one that nobody has, and when there is none steals from the group with the most rows left, which is
its own then, too. When nothing is left to begin, an idle worker tries what another one has had for
unusually long; the first of both counts.

A try that failed is repeated after a pause, elsewhere if possible. Rows that were on a worker when
it died are repeated one at a time, alone on their worker: so the one that kills workers is found
and set aside, and takes no others with it. So are rows that lost their server several times.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from .rows import Row

STRAGGLER = 3.0  # times the longest row so far, from which another worker may try it, too
STRAGGLER_S = 20.0  # seconds that it takes at least
_LONGEST_PAUSE = 30.0


@dataclass(frozen=True)
class Limits:
    """Of a row.

    Attributes:
        attempts: tries that may fail before it is set aside.
        deaths: workers that may die with it.
        pause_s: before the second try; doubled with each.
    """

    attempts: int = 3
    deaths: int = 5
    pause_s: float = 0.5


@dataclass(eq=False)
class Task:
    """A row on its way.

    Attributes:
        tries: times it was begun; each has a trace of its own.
        tries_on: the last of them on each worker, by name: a slow row may be on two.
        failures: what went wrong, of each try that failed.
        deaths: workers that died with it.
        drops: times that its server went away while it worked on it.
        avoid: name of the worker that failed it last.
    """

    row: Row
    tries: int = 0
    tries_on: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    deaths: int = 0
    drops: int = 0
    avoid: str = ""
    running: dict[str, float] = field(default_factory=dict)
    """When it was begun, by the worker that has it."""
    finished: bool = False

    @property
    def model(self) -> str | None:
        """Of the row."""
        return self.row.model


@dataclass(eq=False)
class Station:
    """A worker as the dispatcher sees it.

    Attributes:
        one_model: it has one model at a time, and takes another when it is idle; else any.
        model: the one that it has; "": none yet.
    """

    name: str
    slots: int = 1
    one_model: bool = True
    model: str | None = ""
    tasks: set[Task] = field(default_factory=set)
    groups: list[Hashable] = field(default_factory=list)

    @property
    def free(self) -> bool:
        """Whether it takes one more."""
        alone = any(task.deaths for task in self.tasks)
        return len(self.tasks) < self.slots and not alone

    def takes(self, model: str | None) -> bool:
        """Whether it can do rows of this model now."""
        return not self.one_model or not self.tasks or self.model == model


class Dispatcher:
    """Rows that are to be done, and where they are.

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
        self._groups: dict[Hashable, deque[Task]] = {}
        self._fresh: dict[str | None, deque[Hashable]] = {}  # groups that nobody has, by model
        self._suspects: deque[Task] = deque()
        self._later: list[tuple[float, int, Task]] = []
        self._ticket = itertools.count()
        self._begun: set[Task] = set()
        self._longest = 0.0
        for row in rows:
            self._queue(Task(row))
            self.left += 1

    # --- what next

    def next_for(self, station: Station) -> Task | None:
        """The row that this worker begins now; None: there is none for it."""
        if not station.free:
            return None
        self.wake()
        task = self._suspect_for(station) if not station.tasks else None
        task = task or self._grouped(station) or self._straggler_for(station)
        if task is None:
            return None
        task.tries += 1
        self.retries += task.tries > 1
        task.tries_on[station.name] = task.tries
        task.running[station.name] = self._clock()
        self._begun.add(task)
        station.model = task.model
        station.tasks.add(task)
        return task

    def wake(self) -> None:
        """Rows whose pause is over may be begun; also told where no worker asks for one."""
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            self._queue(heapq.heappop(self._later)[2], first=True)

    def wait_s(self, most: float) -> float:
        """Seconds until a row comes back from its pause, at most `most`."""
        if not self._later:
            return most
        return min(most, max(0.0, self._later[0][0] - self._clock()))

    # --- what came of it

    def finish(self, station: Station, task: Task) -> bool:
        """It is done; False where another worker was sooner."""
        began = self._release(station, task)
        self._longest = max(self._longest, self._clock() - began)
        if task.finished:
            return False
        task.finished = True
        self.left -= 1
        return True

    def fail(self, station: Station, task: Task, why: str) -> bool:
        """A try failed: it is repeated later, or set aside: True then."""
        self._release(station, task)
        if task.finished:
            return False
        task.failures.append(why)
        task.avoid = station.name
        if task.running:  # another worker has it
            return False
        if len(task.failures) >= self.limits.attempts:
            return self._set_aside(task)
        pause = min(_LONGEST_PAUSE, self.limits.pause_s * 2 ** (len(task.failures) - 1))
        heapq.heappush(self._later, (self._clock() + pause, next(self._ticket), task))
        return False

    def drop(self, station: Station, task: Task, why: str) -> bool:
        """Its server went away with it, which may be the row's fault; True where it is set aside.

        After as many times as tries may fail it is a death each time, so the row is tried alone.
        """
        task.drops += 1
        if task.drops >= self.limits.attempts:
            task.deaths += 1
            if task.deaths >= self.limits.deaths and not task.finished and len(task.running) == 1:
                self._release(station, task)
                told = f"its server went away {task.drops} times while it worked on this row"
                task.failures.append(f"{told}: {why}")
                return self._set_aside(task)
        self.give_back(station, task)
        return False

    def give_back(self, station: Station, task: Task) -> None:
        """Its server takes no rows now: no fault of this one."""
        self._release(station, task)
        if not task.finished and not task.running:
            self.retries -= task.tries > 1
            task.tries -= 1
            task.avoid = station.name
            self._queue(task, first=True)
            if len(self._groups.get(task.row.affinity, ())) == 1:
                # Its group is among those that nobody has, and last of them: the row may be why the
                # server went away (a proxy's 504, say), and the others must not wait for it.
                station.groups = [one for one in station.groups if one != task.row.affinity]

    def lose(self, station: Station, why: str) -> list[Task]:
        """The worker died: its rows go elsewhere; gives those that are set aside."""
        aside: list[Task] = []
        for task in sorted(station.tasks, key=lambda task: task.row.number):
            self._release(station, task)
            if task.finished:
                continue
            task.deaths += 1
            if task.running:
                continue
            if task.deaths >= self.limits.deaths:
                task.failures.append(why)
                self._set_aside(task)
                aside.append(task)
            else:
                self._suspects.append(task)
        station.model = ""
        self.forget(station)
        return aside

    def dismiss(self, station: Station) -> None:
        """The worker was given up: its rows go elsewhere, through no fault of theirs."""
        for task in sorted(station.tasks, key=lambda task: task.row.number):
            self.give_back(station, task)
        self.forget(station)

    def forget(self, station: Station) -> None:
        """The worker begins nothing more: its groups are for everybody."""
        for group in station.groups:
            if self._groups.get(group):
                self._fresh.setdefault(_model_of(group), deque()).append(group)
        station.groups.clear()

    def _release(self, station: Station, task: Task) -> float:
        station.tasks.discard(task)
        began = task.running.pop(station.name, self._clock())
        if not task.running:
            self._begun.discard(task)
        return began

    def _set_aside(self, task: Task) -> bool:
        task.finished = True
        self.left -= 1
        return True

    # --- where rows wait

    def _queue(self, task: Task, *, first: bool = False) -> None:
        if task.deaths:
            self._suspects.append(task)
            return
        group = task.row.affinity
        if not self._groups.get(group):
            self._groups[group] = deque()
            self._fresh.setdefault(task.model, deque()).append(group)
        (self._groups[group].appendleft if first else self._groups[group].append)(task)

    def _suspect_for(self, station: Station) -> Task | None:
        for place, task in enumerate(self._suspects):
            if task.avoid != station.name:
                del self._suspects[place]
                return task
        # All of them failed here last: there may be no other worker.
        return self._suspects.popleft() if self._suspects else None

    def _grouped(self, station: Station) -> Task | None:
        """Of its own groups, of one that nobody has, of another worker's."""
        station.groups = [group for group in station.groups if self._groups.get(group)]
        for group in station.groups:
            if station.takes(_model_of(group)):
                return self._take(group, station)
        models = sorted(self._fresh, key=lambda model: model != station.model)
        for model in models:
            while station.takes(model) and self._fresh[model]:
                group = self._fresh[model].popleft()
                if self._groups.get(group):
                    station.groups.append(group)
                    return self._take(group, station)
            if not self._fresh[model]:
                del self._fresh[model]
        others = [g for g, tasks in self._groups.items() if tasks and station.takes(_model_of(g))]
        if not others:
            return None
        group = max(others, key=lambda group: len(self._groups[group]))
        station.groups.append(group)
        return self._take(group, station, last=True)

    def _take(self, group: Hashable, station: Station, *, last: bool = False) -> Task:
        """From the front; a thief from the other end, where the owner comes last."""
        tasks = self._groups[group]
        if tasks[0].avoid == station.name and len(tasks) > 1:
            last = True
        task = tasks.pop() if last else tasks.popleft()
        if not tasks:
            del self._groups[group]
        return task

    def _straggler_for(self, station: Station) -> Task | None:
        """A row that another worker has had for unusually long, where this one is idle."""
        if station.tasks or self._later:
            return None
        since = self._clock() - max(STRAGGLER_S, STRAGGLER * self._longest)
        slow = (
            task
            for task in self._begun
            if len(task.running) == 1
            and not (task.finished or task.deaths)
            # One that fails here would be begun again at once, for as long as the other one runs.
            and task.avoid != station.name
            and len(task.failures) < self.limits.attempts
            and max(task.running.values()) < since
        )
        return min(slow, key=lambda task: max(task.running.values()), default=None)


def _model_of(group: Hashable) -> str | None:
    assert isinstance(group, tuple)
    return group[0]
