"""``triplepoint trace ingest`` and ``report``, and ``query`` of what was ingested."""

from __future__ import annotations

import argparse
import csv
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ...errors import SettingError
from ...traces.sanitize import printable
from .atomic_write import atomic_write, check_outputs
from .job_control import handling
from .option_groups import OptionGroup, argument, option
from .options import count
from .output import Output
from .tables import plain
from .traces import default_folder

if TYPE_CHECKING:
    from ...traces.warehouse.ingest import Summary
    from ...traces.warehouse.reports import Found, Report

REPORTS = (
    *("overview", "phases", "regimes", "tools", "models", "machines", "turns", "rereads"),
    *("failures", "transitions", "predictions"),
)
_TOLD = 20  # files with a problem that are listed; --json has all


class IngestOptions(OptionGroup):
    """Options of ``trace ingest``."""

    sources: list[str] = argument("SOURCE", nargs="*")
    """folders, files or patterns (default: the state folder's traces)"""
    output: str | None = option("-o", "FILE")
    """database to write, FILE.duckdb, or a folder for Parquet files"""
    texts: bool = option()
    """include questions, answers, arguments and results"""
    tokens: bool = option()
    """include the token ids of each phase"""
    jobs: int | None = option("-j")
    """reader processes (default: one per core)"""


class ReportOptions(OptionGroup):
    """Options of ``trace report``."""

    file: str = argument("FILE")
    """database or folder from `trace ingest`"""
    names: list[str] = argument(
        "NAME", f"reports to make: {', '.join(REPORTS)} (default: all)", nargs="*"
    )
    output: str | None = option("-o", "FILE")
    """file for the CSV, or folder for that of several reports"""
    html: str | None = option("FILE")
    """write an HTML page with all reports"""
    limit: int = option("N", type=count, default=20)
    """maximum number of turns; 0: all"""


def ingest(args: argparse.Namespace, output: Output) -> None:
    """Load thousands of traces into a database for queries and reports."""
    from ...traces.warehouse.ingest import ingest as put

    if not args.output:
        raise SettingError(
            "trace ingest needs an output: -o traces.duckdb, or -o FOLDER for Parquet"
        )

    def progress(done: int, total: int) -> None:
        output.progress.loading(done / total, f"{done:,} of {total:,} traces")

    found = put(
        args.sources or [str(default_folder())],
        args.output,
        texts=args.texts,
        tokens=args.tokens,
        jobs=args.jobs or 0,
        progress=progress,
    )
    output.progress.clear()
    for line in _told(found, args.output):
        output.line(line)
    output.json(
        {
            "output": args.output,
            **{name: getattr(found, name) for name in ("files", "new", "replaced", "unchanged")},
            **{name: getattr(found, name) for name in ("left_out", "rows", "seconds")},
            "problems": [vars(record) for record in found.problems],
        }
    )


def _told(found: Summary, target: str) -> list[str]:
    from ...traces.timeline import duration

    read = found.files - found.unchanged
    speed = f", {read / found.seconds:,.0f} files/s" if read and found.seconds > 0 else ""
    counts = [
        f"{number:,} {what}"
        for number, what in (
            (found.new, "new"),
            (found.replaced, "replaced"),
            (found.unchanged, "unchanged"),
            (found.left_out, "left out"),
        )
        if number
    ]
    lines = [
        f"{found.files:,} file{'s' * (found.files != 1)} in {duration(found.seconds)}{speed}: "
        f"{', '.join(counts)}; {found.rows:,} rows written to {target}"
    ]
    for record in found.problems[:_TOLD]:
        lines.append(printable(f"{record.status}: {record.file}: {record.problem}"))
    if len(found.problems) > _TOLD:
        lines.append(
            f"and {len(found.problems) - _TOLD:,} more: triplepoint trace query {target} "
            "\"SELECT file, status, problem FROM files WHERE status <> 'ok'\""
        )
    return lines


def ended_by_interrupt() -> AbstractContextManager[None]:
    """Let Ctrl-C kill the process: duckdb blocks KeyboardInterrupt, and a query writes nothing."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return handling(signal.SIGINT, signal.SIG_DFL)
    return nullcontext()


def query(args: argparse.Namespace, output: Output, path: Path) -> None:
    """Query ingested traces in SQL."""
    from ...traces.warehouse.reading import Warehouse

    with Warehouse(path) as opened, ended_by_interrupt():
        if args.format == "csv":
            with opened.cursor(args.sql) as (names, batches):
                write_csv(names, (row for batch in batches for row in batch))
            return
        names, rows = opened.ask(args.sql)
    show_rows(output, names, rows)


def show_rows(output: Output, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print the result of a query as a table, or as JSON."""
    cells = [["" if value is None else _figure(value) for value in row] for row in rows]
    words = [i for i in range(len(names)) if any(isinstance(row[i], str) for row in rows)]
    plain(output, names, cells, words)
    output.json({"columns": names, "rows": rows})


def write_csv(
    names: Sequence[str], rows: Iterable[Sequence[Any]], file: TextIO | None = None
) -> None:
    """Write rows as CSV, under the names of their columns."""
    from ...traces.export_tables import cell

    target: TextIO = file or sys.stdout
    writer = csv.writer(target, lineterminator="\n")
    writer.writerows(map(cell, row) for row in chain([names], rows))
    target.flush()


def _figure(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def report(args: argparse.Namespace, output: Output) -> None:
    """Report on ingested traces: tables, CSV, an HTML page."""
    from ...traces.warehouse.reading import Warehouse
    from ...traces.warehouse.reports import chosen

    check_outputs(args.html)
    wanted = chosen(args.names)
    if args.output and args.format != "csv":
        raise SettingError("trace report: -o needs --format csv; write a page with --html FILE")
    if args.format == "csv" and len(wanted) > 1 and not args.output:
        raise SettingError(
            "trace report: --format csv of several reports needs a folder: -o FOLDER"
        )
    with Warehouse(args.file) as opened, ended_by_interrupt():
        found = [(one, one.run(opened, args.limit or None)) for one in wanted]
        count = opened.ask("SELECT count(*) FROM files")[1][0][0]
    if args.html:
        _write_page(args, count, found)
        output.line(args.html)
    if args.format == "csv":
        _write_csv(args, found)
    elif not args.html:
        _show(output, found)
    output.json(
        {
            one.name: {"title": one.title, "columns": [c.name for c in rows.columns]}
            | {"rows": rows.rows}
            for one, rows in found
        }
    )


def _show(output: Output, found: Sequence[tuple[Report, Found]]) -> None:
    for number, (one, rows) in enumerate(found):
        if number:
            output.line()
        output.line(one.title, "bold")
        if not rows.rows:
            output.line("no data", "dim")
            continue
        headings = [column.heading for column in rows.columns]
        plain(output, headings, rows.cells(), rows.words)


def _write_page(
    args: argparse.Namespace, count: int, found: Sequence[tuple[Report, Found]]
) -> None:
    from ...traces.warehouse.page import page

    place = os.path.realpath(args.file)
    text = page(f"Traces in {Path(place).name}", f"{count:,} files, ingested into {place}", found)
    with atomic_write(args.html) as file:
        file.write(text)


def _write_csv(args: argparse.Namespace, found: Sequence[tuple[Report, Found]]) -> None:
    if len(found) == 1 and not args.output:
        _write_report(found[0][1], sys.stdout)
        return
    folder = Path(args.output)
    if len(found) == 1 and not folder.is_dir():
        with atomic_write(folder) as file:
            _write_report(found[0][1], file)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for one, rows in found:
        with atomic_write(folder / f"{one.name}.csv") as file:
            _write_report(rows, file)


def _write_report(found: Found, file: TextIO) -> None:
    names = [column.name for column in found.columns]
    write_csv(names, ([row[name] for name in names] for row in found.rows), file)
