"""The map over rows from Python, and the parts it shares with the command line."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ...arguments import as_list, as_mapping, as_path, check_whole, is_number
from ...errors import RowError, SettingError
from ..config import default_model
from ..files import make_folder
from ..remote.server import Server
from .answering import AgentFactory, Recipe
from .dispatch import Limits
from .mapping import Bounds, MapReport, MapRun, Price, poison_path, traces_folder
from .plain_values import frame_rows
from .results import Results
from .rows import Row, make_rows, read_rows
from .workers import PATIENCE_S, LocalWorker, Post, ServerWorker, Work, Worker

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from .ray_cluster import RayPool

Order = Literal["input", "done"]
TARGET = "local:4"
SLOTS = 4
"""Default number of rows that a server or an actor runs at once."""


@dataclass(frozen=True)
class Target:
    """The target of a run: ``local``, ``http`` or ``ray``.

    Attributes:
        slots: rows that each worker runs at once.
        addresses: of servers, or of a cluster.
    """

    kind: Literal["local", "http", "ray"]
    slots: int
    addresses: tuple[str, ...] = ()


@dataclass
class Fleet:
    """The target of a run, and the options of its engines and workers.

    Attributes:
        target: see `parse_target`.
        model: of rows that name none.
        engine: loaded already, for a local run.
        load: loads the local engine of a model; by default with `options`.
        options: arguments of `Engine.load`.
        patience_s: seconds that a server may not respond.
        workers, threads, memory: of a cluster: engines, threads of each, bytes of each; None: as
            many as fit.
    """

    target: Target
    model: str | None = None
    engine: Engine | None = None
    load: Callable[[str | None], Engine] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    patience_s: float = PATIENCE_S
    context: int | None = None
    workers: int | None = None
    threads: int | None = None
    memory: int | None = None
    _ready: Engine | None = None
    _prepares: bool = True
    _pool: RayPool | None = None

    def prepare(self, rows: Iterable[Row]) -> None:
        """Load the model of rows that name none, for a local run; an error ends the run.

        Raises:
            ModelError, SettingError: it cannot be loaded.
        """
        self._prepares = any(row.model is None for row in rows)
        if self.target.kind == "local" and self._prepares:
            self._ready = self._load(None)

    def begin(self, post: Post) -> None:
        """Start to report workers that join the cluster."""
        if self._pool is not None:
            self._pool.start(post)

    def close(self) -> None:
        """Release the engine and the pool, if no worker took them."""
        if self._ready is not None and self._ready is not self.engine:
            self._ready.close()
        if self._pool is not None:
            self._pool.close()

    def make_workers(self, work: Work) -> list[Worker]:
        """Build the workers, not yet started.

        Raises:
            SettingError: a setting makes no sense, or an extra is missing.
            FleetError: the cluster cannot be reached.
        """
        slots = self.target.slots
        if self.target.kind == "http":
            key = os.environ.get("TRIPLEPOINT_API_KEY")
            return [
                ServerWorker(
                    url,
                    slots,
                    work,
                    model=self.model,
                    api_key=key,
                    context=self.context,
                    patience_s=self.patience_s,
                )
                for url in self.target.addresses
            ]
        if self.target.kind == "ray":
            from .ray_cluster import RayPool

            self._pool = RayPool(
                self.target.addresses[0],
                slots,
                work,
                model=_from_here(self.model or default_model().value),
                options=self.options,
                patience_s=self.patience_s,
                workers=self.workers,
                threads=self.threads or self.options.get("threads"),
                memory=self.memory,
                prepares=self._prepares,
            )
            return [*self._pool.workers]
        return [LocalWorker("local", slots, work, self._load, owned=self.engine is None)]

    def _load(self, model: str | None) -> Engine:
        if model is None and self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        if self.engine is not None:
            if model is not None:
                raise SettingError(
                    f"a row asks for the model {model!r}, but a local engine has only one"
                )
            return self.engine
        if self.load is not None:
            return self.load(model)
        from ..engine.engine import Engine

        return Engine.load(model or self.model or default_model().value, **self.options)


def parse_target(text: object, slots: int | None = None) -> Target:
    """Parse a target: ``local:N``, server URLs, ``auto`` or ``ray://…`` for a cluster.

    Raises:
        SettingError: it is none of these.
    """
    if slots is not None:
        check_whole(slots, "slots", SettingError, 1)
    known = "give local:N, http://HOST:PORT[,…], auto (the Ray cluster here) or ray://HOST:PORT"
    if not isinstance(text, str):
        raise SettingError(f"to must be a string, not {text!r}; {known}")
    if found := re.fullmatch(r"local(?::([1-9][0-9]{0,2}))?", text):
        if found[1] and slots is not None and slots != int(found[1]):
            raise SettingError(
                f"to={text!r} and slots={slots} are two numbers of concurrent rows; give one"
            )
        return Target("local", slots or int(found[1] or SLOTS))
    if text == "auto" or re.fullmatch(r"ray://[^\s,/]+", text):
        return Target("ray", slots or SLOTS, (text,))
    if text.startswith(("http://", "https://")):
        addresses = tuple(dict.fromkeys(one.rstrip("/") for one in text.split(",")))
        for address in addresses:
            Server(address, None, 1.0)
        return Target("http", slots or SLOTS, addresses)
    raise SettingError(f"unknown target: {text!r}; {known}")


def run_map(
    rows: list[Row],
    make: Recipe | AgentFactory,
    fleet: Fleet,
    *,
    results: Results,
    poison: Results,
    traces: Path | None,
    order: Order = "input",
    limits: Limits | None = None,
    bounds: Bounds | None = None,
    retry_failed: bool = False,
    on_progress: Callable[[MapReport], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> MapReport:
    """Run the rows that have no result yet; the results are sorted at the end in any case."""
    if fleet.target.kind == "ray":
        rows, make = _absolute(rows, make)
    own = [found.path for found in (results, poison) if found.path is not None]
    hidden = tuple(Path(os.path.abspath(path)) for path in (*own, traces) if path is not None)
    if traces is not None:
        _check_traces_apart(traces, rows, make)
    work = Work(make, traces, mark=_mark(results.path, traces), hidden=hidden)
    run = MapRun(
        rows,
        work,
        results,
        poison,
        limits=limits,
        bounds=bounds,
        retry_failed=retry_failed,
        on_progress=on_progress,
        on_note=on_note,
    )
    try:
        if run.todo:
            if traces is not None:
                _make_traces_folder(traces)
            fleet.prepare(run.todo)
            return run.run(fleet.make_workers(work), fleet.begin)
        return run.report
    finally:
        fleet.close()
        if order == "input":
            with contextlib.suppress(OSError):  # what is durable is there, in another order
                results.sort({row.key: row.number for row in rows})


def _mark(results: Path | None, traces: Path | None) -> str:
    """Return a tag of the results file for names of traces, if their folder is shared.

    The same rows may go to two models, with one folder for the traces of both.
    """
    if results is None or traces is None or traces == traces_folder(results):
        return ""
    return f"-{hashlib.sha256(os.fsencode(results.resolve())).hexdigest()[:6]}"


def _absolute(
    rows: list[Row], make: Recipe | AgentFactory
) -> tuple[list[Row], Recipe | AgentFactory]:
    """Return the rows with absolute paths, since actors run in other folders; keys stay."""
    rows = [
        replace(one, dir=one.dir and os.path.abspath(one.dir), model=_from_here(one.model))
        for one in rows
    ]
    if isinstance(make, Recipe):
        paths = {"dir": make.dir, "policy": make.policy}
        made = {name: os.path.abspath(path) for name, path in paths.items() if path is not None}
        make = replace(make, **made)
    return rows, make


def _from_here(model: str | None) -> str | None:
    """Return the absolute path of a local model file; return other names unchanged."""
    if model is None or model == "nano" or not os.path.exists(path := os.path.expanduser(model)):
        return model
    return os.path.abspath(path)


def _check_traces_apart(traces: Path, rows: list[Row], make: Recipe | AgentFactory) -> None:
    """Refuse a trace folder that tasks read: it cannot be hidden from them."""
    folders = {row.dir for row in rows if row.dir is not None}
    if isinstance(make, Recipe) and make.dir is not None and any(row.dir is None for row in rows):
        folders.add(make.dir)
    target = os.path.realpath(traces)
    if any(os.path.realpath(folder) == target for folder in folders):
        raise SettingError(
            f"traces would be written to {traces}, the folder that rows read; give another folder "
            "for traces"
        )


def _make_traces_folder(path: Path) -> None:
    """Create the trace folder before the run, or each row would fail on it."""
    try:
        make_folder(path, 0o777)
    except OSError as error:
        raise SettingError(f"cannot make the folder of traces {path}: {error.strerror}") from None
    if not path.is_dir():
        raise SettingError(f"traces must be a folder, and {path} is a file")


def open_results(path: Path | None) -> tuple[Results, Results]:
    """Open a results file and its dead-letter file.

    Raises:
        RowError: one of the files holds something else, or another run writes it.
    """
    results = Results(path)
    if path is None:
        return results, Results(None)
    try:
        return results, Results(poison_path(path))
    except BaseException:
        results.close()
        raise


def close_results(results: Results, poison: Results) -> None:
    """Close both files; an empty dead-letter file is removed."""
    if poison.path is not None and not len(poison):
        poison.path.unlink(missing_ok=True)
    results.close()
    poison.close()


def map_rows(
    agent_factory: AgentFactory,
    rows: str | Path | Iterable[Mapping[str, Any] | str],
    *,
    to: str = TARGET,
    engine: Engine | None = None,
    model: str | None = None,
    results: str | Path | None = None,
    traces: str | Path | bool = True,
    order: Order = "input",
    attempts: int = 3,
    until: float | None = None,
    max_cost: float | None = None,
    price: Mapping[str, float] | None = None,
    on_progress: Callable[[MapReport], None] | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Run an agent on each row's question, many at once; see `triplepoint map`.

        def agent(engine, row):
            return Agent(engine, workspace=row["dir"])

        rows = [{"question": "What failed?", "dir": "runs/1"}]
        triplepoint.map_rows(agent, rows, results="r.jsonl")

    Args:
        agent_factory: function of an engine and a row that makes the agent for the row. On a
            cluster it is pickled.
        rows: mappings with a ``question``, plain questions, a table of pandas, polars or Arrow, or
            the path of a file with rows.
        to: ``local:N`` (N agents on one engine), comma-separated URLs of servers, or a Ray
            cluster: ``auto`` or ``ray://HOST:PORT``.
        engine: for a local map, an engine that is already loaded; it is left open.
        model: model for rows that name none.
        results: results file, one JSON line per row. Rows already in it are skipped. Without it,
            results are only in memory.
        traces: folder for traces; True: one next to the results; False: none.
        order: order of the results: ``input``, or ``done``, as rows finished.
        attempts: attempts per row before it is set aside.
        until: time (as from `time.time`) after which no more rows are started.
        max_cost: cost after which no more rows are started, with `price`: ``in``, ``cached`` and
            ``out`` per million tokens, ``hour`` per hour of a row.
        on_progress: called with the state.
        options: arguments of `Engine.load`, such as threads and context.

    Returns:
        The results, those of rows that were set aside last: each row's fields with ``status``,
        ``answer``, ``usage`` and what else docs/fleet.md lists.

    Raises:
        RowError: a row is invalid, or the results belong to other rows.
        SettingError: a setting is invalid.
        FleetError: no workers are left; finished rows are in the results.
    """
    if not callable(agent_factory):
        raise SettingError(f"agent_factory must be a function, not {agent_factory!r}")
    if order not in get_args(Order):
        raise SettingError(f"order must be input or done, not {order!r}")
    check_whole(attempts, "attempts", SettingError, 1)
    if on_progress is not None and not callable(on_progress):
        raise SettingError(f"on_progress must be a function, not {on_progress!r}")
    bounds = _bounds(until, max_cost, price)
    target = parse_target(to)
    if engine is not None and target.kind != "local":
        raise SettingError("engine can be a loaded Engine only for a local map")
    if engine is not None and (model is not None or options):
        raise SettingError("engine is already loaded; leave out model and options")
    if options and target.kind == "http":
        raise SettingError("options are for Engine.load, but a server has already loaded its model")
    if engine is not None and not hasattr(engine, "core"):
        raise SettingError(f"engine must be an Engine, not {engine!r}")
    if model is not None and not isinstance(model, str):
        raise SettingError(f"model must be a string, not {model!r}")
    found = _rows(rows)
    path = None if results is None else as_path(results, "results", RowError)
    folder = None if path is None or traces is False else traces_folder(path)
    if not isinstance(traces, bool):
        folder = as_path(traces, "traces", SettingError)
    given = as_mapping(options or {}, "options must be arguments of Engine.load", SettingError)
    _check_options(given)
    if given.get("threads") is not None:
        check_whole(given["threads"], "threads", SettingError, 1)
    fleet = Fleet(target, model, engine, options=dict(given))
    try:
        done, poison = open_results(path)
    except OSError as error:
        raise RowError(f"{path}: {error.strerror}") from None
    try:
        run_map(
            found,
            agent_factory,
            fleet,
            results=done,
            poison=poison,
            traces=folder,
            order=order,
            limits=Limits(attempts),
            bounds=bounds,
            on_progress=on_progress,
        )
        return [*done, *poison]
    finally:
        close_results(done, poison)


def _rows(given: object) -> list[Row]:
    if isinstance(given, str | os.PathLike):
        path = as_path(given, "rows", RowError)
        try:
            return read_rows(path)
        except OSError as error:
            raise RowError(f"{path}: {error.strerror}") from None
    what = "rows must be mappings, questions, or the path of a file with rows"
    if isinstance(given, Mapping):  # its names would be taken as questions
        raise RowError(f"{what}, not one mapping; put it in a list")
    items = as_list(frame_rows(given), what, RowError)
    fields: list[tuple[str, Mapping[str, Any]]] = []
    for number, item in enumerate(items, 1):
        one = {"question": item} if isinstance(item, str) else item
        if not isinstance(one, Mapping):
            raise RowError(f"row {number} must be a mapping or a question, not {item!r}")
        fields.append((f"row {number}", one))
    return make_rows(fields)


def _check_options(given: Mapping[Any, Any]) -> None:
    from ..engine.engine import Engine

    known = set(inspect.signature(Engine.load).parameters) - {"model"}
    for name in given:
        if name not in known:
            raise SettingError(f"options: Engine.load has no argument {name!r}")


def _bounds(until: object, max_cost: object, price: object) -> Bounds:
    for name, value in (("until", until), ("max_cost", max_cost)):
        if value is not None and not (is_number(value) and 0 <= value < 1e15):  # type: ignore[operator]
            raise SettingError(f"{name} must be a number of 0 or more, not {value!r}")
    prices = read_price(price)
    if max_cost is not None and prices.free:
        raise SettingError("max_cost needs a price: give in, out, or hour")
    return Bounds(until, max_cost, prices)  # type: ignore[arg-type]


def read_price(given: object) -> Price:
    """Build a price from a mapping.

    Raises:
        SettingError: it says something else, or no number.
    """
    if given is None:
        return Price()
    names = {"in": "tokens_in", "cached": "tokens_cached", "out": "tokens_out", "hour": "hour"}
    if not isinstance(given, Mapping) or any(name not in names for name in given):
        raise SettingError(f"price must map {', '.join(names)} to numbers, not {given!r}")
    for name, value in given.items():
        if not (is_number(value) and 0 <= value < 1e12):
            raise SettingError(f"the price {name!r} must be a number of 0 or more, not {value!r}")
    return Price(**{names[name]: value for name, value in given.items()})


def parse_until(text: str) -> float:
    """Parse a time of day, a date and time, or a duration: ``18:00``, ``90s``, ``8h``.

    Raises:
        ValueError: it is none.
    """
    if found := re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)([smhd])", text):
        return time.time() + float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
    if found := re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", text):
        now = time.localtime()
        at = time.mktime((*now[:3], int(found[1]), int(found[2]), 0, 0, 0, -1))
        return at if at > time.time() else at + 86400
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()
