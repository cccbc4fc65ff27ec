"""Which row goes where: routing, stealing, retries, rows that kill workers."""

from __future__ import annotations

import random
from typing import Any

from triplepoint.runtime.fleet.dispatch import STRAGGLER_S, Dispatcher, Limits, Station, Task
from triplepoint.runtime.fleet.rows import Row, make_rows


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def rows(*dirs: str, **more: Any) -> list[Row]:
    return make_rows(("", {"question": f"q{n}", "dir": d, **more}) for n, d in enumerate(dirs))


def names(tasks: list[Task | None]) -> list[str]:
    return [task.row.question if task is not None else "-" for task in tasks]


def test_a_worker_keeps_its_folder_and_steals_when_idle() -> None:
    """Each takes a folder of its own; who has none left takes from the end of the longest."""
    dispatcher = Dispatcher(rows("a", "a", "a", "a", "b", "b"))
    one, two = Station("one", 9), Station("two", 9)
    first = [dispatcher.next_for(station) for station in (one, two, one, two)]

    assert names(first) == ["q0", "q4", "q1", "q5"]
    assert names([dispatcher.next_for(two), dispatcher.next_for(one)]) == ["q3", "q2"]
    assert dispatcher.next_for(one) is None


def test_slots_are_a_bound() -> None:
    """A worker gets no more than it takes."""
    dispatcher = Dispatcher(rows("a", "a", "a"))
    station = Station("one", 2)
    tasks = [dispatcher.next_for(station) for _ in range(3)]

    assert names(tasks) == ["q0", "q1", "-"]
    assert tasks[0] is not None
    assert dispatcher.finish(station, tasks[0])
    assert names([dispatcher.next_for(station)]) == ["q2"]


def test_a_failed_try_is_repeated_later_and_set_aside_in_the_end() -> None:
    """After pauses that double; each try counts, and the last one sets the row aside."""
    clock = Clock()
    dispatcher = Dispatcher(rows("a"), Limits(attempts=3, pause_s=1.0), clock)
    station = Station("one")
    for pause in (1.0, 2.0):
        task = dispatcher.next_for(station)
        assert task is not None
        assert not dispatcher.fail(station, task, "no")
        assert dispatcher.next_for(station) is None
        assert dispatcher.wait_s(9.0) == pause
        clock.now += pause
    task = dispatcher.next_for(station)
    assert task is not None
    assert task.tries == 3
    assert dispatcher.fail(station, task, "no")
    assert (dispatcher.left, dispatcher.retries, task.failures) == (0, 2, ["no"] * 3)


def test_a_server_that_goes_away_costs_no_try() -> None:
    """The row is there again, for anybody."""
    dispatcher = Dispatcher(rows("a"))
    station = Station("one")
    task = dispatcher.next_for(station)
    assert task is not None
    dispatcher.give_back(station, task)
    again = dispatcher.next_for(Station("two"))

    assert again is task
    assert (task.tries, task.failures) == (1, [])


def test_a_row_that_is_given_back_does_not_hold_up_the_others() -> None:
    """Its server may be away because of it: the only worker does the other rows first."""
    dispatcher = Dispatcher(make_rows(("", {"question": f"q{n}"}) for n in range(3)))
    station, begun = Station("one"), []
    for _ in range(4):
        task = dispatcher.next_for(station)
        assert task is not None
        begun.append(task.row.question)
        if begun == ["q0"]:
            dispatcher.give_back(station, task)
        else:
            dispatcher.finish(station, task)

    assert begun == ["q0", "q1", "q2", "q0"]


def test_the_row_that_kills_workers_is_found() -> None:
    """Of four rows on a worker that dies, each is tried again alone; one is set aside, the others
    are done."""
    dispatcher = Dispatcher(rows("a", "a", "a", "a"), Limits(deaths=3))
    station, done, aside = Station("one", 4), [], []
    for _ in range(40):
        while (task := dispatcher.next_for(station)) is not None:
            assert len(station.tasks) == 1 or not any(t.deaths for t in station.tasks)
        if any(task.row.question == "q2" for task in station.tasks):
            aside += dispatcher.lose(station, "killed")
        for task in list(station.tasks):
            assert dispatcher.finish(station, task)
            done.append(task.row.question)
        if not dispatcher.left:
            break

    assert sorted(done) == ["q0", "q1", "q3"]
    assert [task.row.question for task in aside] == ["q2"]


def test_the_row_that_its_server_goes_away_with_is_found() -> None:
    """A server that goes away with the same row again and again gets it alone, and then no more;
    rows that were beside it are done, and none of this counts as a try."""
    dispatcher = Dispatcher(rows("a", "a", "a"), Limits(attempts=2, deaths=3))
    station, done, aside, beside = Station("one", 3), [], [], []
    for _ in range(40):
        while (task := dispatcher.next_for(station)) is not None:
            pass
        here = sorted(station.tasks, key=lambda task: task.row.number)
        if bad := next((task for task in here if task.row.question == "q1"), None):
            beside.append(len(here))
            for task in here:
                if dispatcher.drop(station, task, "reset"):
                    aside.append(task)
            assert bad.tries <= 1
        for task in list(station.tasks):
            assert dispatcher.finish(station, task)
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
    station, other = Station("one", 2), Station("two", 2)
    assert dispatcher.next_for(station) is not dispatcher.next_for(station)
    dispatcher.dismiss(station)

    tasks = [dispatcher.next_for(other) for _ in range(2)]
    assert [(task and task.deaths, task and task.tries) for task in tasks] == [(0, 1)] * 2
    assert not station.tasks


def test_models_are_not_mixed() -> None:
    """A worker changes the model only when it is idle; a server takes any."""
    mixed = make_rows(("", {"question": f"q{n}", "model": "xy"[n % 2]}) for n in range(4))
    dispatcher = Dispatcher(mixed)
    station = Station("one", 4)
    tasks = [dispatcher.next_for(station) for _ in range(3)]
    assert names(tasks) == ["q0", "q2", "-"]
    for task in tasks[:2]:
        assert task is not None
        dispatcher.finish(station, task)
    assert names([dispatcher.next_for(station) for _ in range(3)]) == ["q1", "q3", "-"]

    server = Station("two", 4, one_model=False)
    again = Dispatcher(mixed)
    assert sorted(names([again.next_for(server) for _ in range(4)])) == ["q0", "q1", "q2", "q3"]


def test_a_straggler_is_tried_elsewhere_and_counts_once() -> None:
    """An idle worker takes what another one has had for long; who is later changes nothing."""
    clock = Clock()
    dispatcher = Dispatcher(rows("a"), clock=clock)
    slow, idle = Station("slow"), Station("idle")
    task = dispatcher.next_for(slow)
    assert dispatcher.next_for(idle) is None
    clock.now += STRAGGLER_S + 1
    assert dispatcher.next_for(slow) is None
    assert task is not None
    assert dispatcher.next_for(idle) is task
    assert dispatcher.next_for(Station("third")) is None

    assert dispatcher.finish(idle, task)
    assert not dispatcher.finish(slow, task)
    assert dispatcher.left == 0


def test_any_order_of_events_does_each_row_once() -> None:
    """Random finishes, failures, deaths and absences: every row is finished or set aside, once."""
    for seed in range(60):
        rng = random.Random(seed)
        clock = Clock()
        folders = [rng.choice("abcd") for _ in range(rng.randint(1, 30))]
        given = rows(*folders)
        dispatcher = Dispatcher(given, Limits(attempts=2, deaths=3, pause_s=0.1), clock)
        stations = [Station(str(n), rng.randint(1, 3)) for n in range(3)]
        ended: list[int] = []
        for _ in range(5000):
            clock.now += rng.choice((0.01, 0.2, 30.0))
            station = rng.choice(stations)
            for _ in range(rng.randint(0, 3)):
                dispatcher.next_for(station)
            for task in sorted(station.tasks, key=lambda task: task.row.number):
                match rng.randint(0, 6):
                    case 0:
                        if dispatcher.fail(station, task, "x"):
                            ended.append(task.row.number)
                    case 1:
                        dispatcher.give_back(station, task)
                    case 6:
                        if dispatcher.drop(station, task, "gone"):
                            ended.append(task.row.number)
                    case 2 | 3:
                        if dispatcher.finish(station, task):
                            ended.append(task.row.number)
                    case _:
                        pass
            if rng.random() < 0.05:
                ended += [task.row.number for task in dispatcher.lose(station, "dead")]
            if not dispatcher.left:
                break
        assert sorted(ended) == list(range(len(given))), seed


def test_suspects_that_fail_too_are_repeated_by_the_only_worker() -> None:
    """Two rows whose worker died, and which then failed on it: there is no other one."""
    clock = Clock()
    dispatcher = Dispatcher(rows("a", "a"), Limits(attempts=2), clock)
    station = Station("one", 2)
    assert dispatcher.next_for(station) is not dispatcher.next_for(station)
    assert dispatcher.lose(station, "killed") == []
    aside: list[bool] = []
    for _ in range(2):
        for _ in range(2):
            task = dispatcher.next_for(station)
            assert task is not None
            aside.append(dispatcher.fail(station, task, "no"))
        clock.now += 9

    assert aside == [False, False, True, True]
    assert dispatcher.left == 0


def test_a_straggler_that_fails_elsewhere_is_not_begun_again_and_again() -> None:
    """Not by the one that failed it, and by others no more often than it may fail."""
    clock = Clock()
    dispatcher = Dispatcher(rows("a"), Limits(attempts=3), clock)
    slow, others = Station("slow"), [Station("x"), Station("y")]
    task = dispatcher.next_for(slow)
    clock.now += STRAGGLER_S + 1
    for n in range(9):
        if dispatcher.next_for(others[n % 2]) is task and task is not None:
            assert not dispatcher.fail(others[n % 2], task, "no")
            assert dispatcher.next_for(others[n % 2]) is None

    assert task is not None
    assert (task.tries, len(task.failures)) == (4, 3)
    assert dispatcher.finish(slow, task)
