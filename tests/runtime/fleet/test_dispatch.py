"""Which row goes where: routing, sharing, retries, rows that kill workers."""

from __future__ import annotations

import random
import time
from typing import Any

from triplepoint.runtime.fleet.dispatch import Dispatcher, Limits, Task, WorkerState
from triplepoint.runtime.fleet.rows import Row, make_rows


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def rows(*dirs: str, **more: Any) -> list[Row]:
    return make_rows(("", {"question": f"q{n}", "dir": d, **more}) for n, d in enumerate(dirs))


def names(tasks: list[Task | None]) -> list[str]:
    return [task.row.question if task is not None else "-" for task in tasks]


def test_a_worker_keeps_its_folder_and_helps_when_idle() -> None:
    """Each takes a folder of its own; who has none left takes what was begun longest ago."""
    dispatcher = Dispatcher(rows("a", "a", "a", "a", "b", "b"))
    one, two = WorkerState("one", 9), WorkerState("two", 9)
    first = [dispatcher.next_for(worker) for worker in (one, two, one, two)]

    assert names(first) == ["q0", "q4", "q1", "q5"]
    assert names([dispatcher.next_for(two), dispatcher.next_for(one)]) == ["q2", "q3"]
    assert dispatcher.next_for(one) is None


def test_many_folders_take_no_longer_each() -> None:
    """A row is found among 40,000 folders as fast as among a few."""
    dispatcher = Dispatcher(rows(*map(str, range(40_000))))
    workers = [WorkerState(str(n), 4) for n in range(8)]
    begun = time.perf_counter()
    while dispatcher.left:
        for worker in workers:
            if (task := dispatcher.next_for(worker)) is not None:
                dispatcher.finish(worker, task)
    assert time.perf_counter() - begun < 20


def test_slots_are_a_bound() -> None:
    """A worker gets no more than it takes."""
    dispatcher = Dispatcher(rows("a", "a", "a"))
    worker = WorkerState("one", 2)
    tasks = [dispatcher.next_for(worker) for _ in range(3)]

    assert names(tasks) == ["q0", "q1", "-"]
    assert tasks[0] is not None
    dispatcher.finish(worker, tasks[0])
    assert names([dispatcher.next_for(worker)]) == ["q2"]


def test_a_failed_try_is_repeated_later_and_set_aside_in_the_end() -> None:
    """After pauses that double; each try counts, and the last one sets the row aside."""
    clock = Clock()
    dispatcher = Dispatcher(rows("a"), Limits(attempts=3, pause_s=1.0), clock)
    worker = WorkerState("one")
    for pause in (1.0, 2.0):
        task = dispatcher.next_for(worker)
        assert task is not None
        assert not dispatcher.fail(worker, task, "no")
        assert dispatcher.next_for(worker) is None
        assert dispatcher.wait_s(9.0) == pause
        clock.now += pause
    task = dispatcher.next_for(worker)
    assert task is not None
    assert task.tries == 3
    assert dispatcher.fail(worker, task, "no")
    assert (dispatcher.left, dispatcher.retries, task.failures) == (0, 2, ["no"] * 3)


def test_a_server_that_goes_away_costs_no_try() -> None:
    """The row is there again, for anybody."""
    dispatcher = Dispatcher(rows("a"))
    worker = WorkerState("one")
    task = dispatcher.next_for(worker)
    assert task is not None
    dispatcher.give_back(worker, task)
    again = dispatcher.next_for(WorkerState("two"))

    assert again is task
    assert (task.tries, task.failures) == (1, [])


def test_a_row_that_is_given_back_does_not_hold_up_the_others() -> None:
    """Its server may be away because of it: the only worker does the other rows first."""
    dispatcher = Dispatcher(make_rows(("", {"question": f"q{n}"}) for n in range(3)))
    worker, begun = WorkerState("one"), []
    for _ in range(4):
        task = dispatcher.next_for(worker)
        assert task is not None
        begun.append(task.row.question)
        if begun == ["q0"]:
            dispatcher.give_back(worker, task)
        else:
            dispatcher.finish(worker, task)

    assert begun == ["q0", "q1", "q2", "q0"]


def test_the_row_that_kills_workers_is_found() -> None:
    """Of four rows on a worker that dies, each is tried again alone; one is set aside, the others
    are done."""
    dispatcher = Dispatcher(rows("a", "a", "a", "a"), Limits(deaths=3))
    worker, done, aside = WorkerState("one", 4), [], []
    for _ in range(40):
        while (task := dispatcher.next_for(worker)) is not None:
            assert len(worker.tasks) == 1 or not any(t.deaths for t in worker.tasks)
        if any(task.row.question == "q2" for task in worker.tasks):
            aside += [t for t in [*worker.tasks] if dispatcher.lose(worker, t, "killed")]
        for task in list(worker.tasks):
            dispatcher.finish(worker, task)
            done.append(task.row.question)
        if not dispatcher.left:
            break

    assert sorted(done) == ["q0", "q1", "q3"]
    assert [task.row.question for task in aside] == ["q2"]


def test_the_row_that_its_server_goes_away_with_is_found() -> None:
    """A server that goes away with the same row again and again gets it alone, and then no more;
    rows that were beside it are done, and none of this counts as a try."""
    dispatcher = Dispatcher(rows("a", "a", "a"), Limits(attempts=2, deaths=3))
    worker, done, aside, beside = WorkerState("one", 3), [], [], []
    for _ in range(40):
        while (task := dispatcher.next_for(worker)) is not None:
            pass
        here = sorted(worker.tasks, key=lambda task: task.row.number)
        if bad := next((task for task in here if task.row.question == "q1"), None):
            beside.append(len(here))
            for task in here:
                if dispatcher.drop(worker, task, "reset"):
                    aside.append(task)
            assert bad.tries <= 1
        for task in list(worker.tasks):
            dispatcher.finish(worker, task)
            done.append(task.row.question)
        if not dispatcher.left:
            break

    assert sorted(done) == ["q0", "q2"]
    assert beside[-1] == 1
    assert [task.failures for task in aside] == [
        ["its server went away 4 times while it worked on this row: reset"]
    ]


def test_rows_of_a_worker_that_is_given_up_are_not_to_blame() -> None:
    """Another one begins them, together."""
    dispatcher = Dispatcher(rows("a", "a"))
    worker, other = WorkerState("one", 2), WorkerState("two", 2)
    assert dispatcher.next_for(worker) is not dispatcher.next_for(worker)
    dispatcher.dismiss(worker)

    tasks = [dispatcher.next_for(other) for _ in range(2)]
    assert [(task and task.deaths, task and task.tries) for task in tasks] == [(0, 1)] * 2
    assert not worker.tasks


def test_models_are_not_mixed() -> None:
    """A worker changes the model only when it is idle; a server takes any."""
    mixed = make_rows(("", {"question": f"q{n}", "model": "xy"[n % 2]}) for n in range(4))
    dispatcher = Dispatcher(mixed)
    worker = WorkerState("one", 4)
    tasks = [dispatcher.next_for(worker) for _ in range(3)]
    assert names(tasks) == ["q0", "q2", "-"]
    for task in tasks[:2]:
        assert task is not None
        dispatcher.finish(worker, task)
    assert names([dispatcher.next_for(worker) for _ in range(3)]) == ["q1", "q3", "-"]

    server = WorkerState("two", 4, one_model=False)
    again = Dispatcher(mixed)
    assert sorted(names([again.next_for(server) for _ in range(4)])) == ["q0", "q1", "q2", "q3"]


def test_any_order_of_events_does_each_row_once() -> None:
    """Random finishes, failures, deaths and absences: every row is finished or set aside, once."""
    for seed in range(60):
        rng = random.Random(seed)
        clock = Clock()
        folders = [rng.choice("abcd") for _ in range(rng.randint(1, 30))]
        given = rows(*folders)
        dispatcher = Dispatcher(given, Limits(attempts=2, deaths=3, pause_s=0.1), clock)
        workers = [WorkerState(str(n), rng.randint(1, 3)) for n in range(3)]
        ended: list[int] = []
        for _ in range(5000):
            clock.now += rng.choice((0.01, 0.2, 30.0))
            worker = rng.choice(workers)
            for _ in range(rng.randint(0, 3)):
                dispatcher.next_for(worker)
            for task in sorted(worker.tasks, key=lambda task: task.row.number):
                match rng.randint(0, 6):
                    case 0:
                        if dispatcher.fail(worker, task, "x"):
                            ended.append(task.row.number)
                    case 1:
                        dispatcher.give_back(worker, task)
                    case 6:
                        if dispatcher.drop(worker, task, "gone"):
                            ended.append(task.row.number)
                    case 2 | 3:
                        dispatcher.finish(worker, task)
                        ended.append(task.row.number)
                    case _:
                        pass
            if rng.random() < 0.05:
                lost = [t for t in [*worker.tasks] if dispatcher.lose(worker, t, "dead")]
                ended += [task.row.number for task in lost]
            if not dispatcher.left:
                break
        assert sorted(ended) == list(range(len(given))), seed


def test_suspects_that_fail_too_are_repeated_by_the_only_worker() -> None:
    """Two rows whose worker died, and which then failed on it: there is no other one."""
    clock = Clock()
    dispatcher = Dispatcher(rows("a", "a"), Limits(attempts=2), clock)
    worker = WorkerState("one", 2)
    assert dispatcher.next_for(worker) is not dispatcher.next_for(worker)
    assert not any(dispatcher.lose(worker, task, "killed") for task in [*worker.tasks])
    aside: list[bool] = []
    for _ in range(2):
        for _ in range(2):
            task = dispatcher.next_for(worker)
            assert task is not None
            aside.append(dispatcher.fail(worker, task, "no"))
        clock.now += 9

    assert aside == [False, False, True, True]
    assert dispatcher.left == 0
