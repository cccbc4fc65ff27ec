"""``triplepoint trace``: inspect recorded runs, without a model.

Nothing here loads the engine: no numpy, no llvmlite. Only `show --show-prompt` needs the model.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import SettingError, TraceError
from ...traces.sanitize import printable
from . import trace_warehouse
from .arguments import add_commands, positive
from .atomic_write import atomic_write, check_outputs
from .option_groups import OptionGroup, argument, option
from .options import TableFormat, count
from .output import Output
from .removing import RemovingOptions, agreed, chosen, report_removed
from .trace_warehouse import IngestOptions, ReportOptions, ingest, report
from .traces import TRACE, default_folder, trace_json
from .transcript import show_end, show_header, show_parent, show_prompt, show_rest, show_turn

if TYPE_CHECKING:
    from ...traces.diff import Diff
    from ...traces.reader import Trace

FORMATS = ("perfetto", "otlp-json", "csv", "parquet")
TABLES = ("runs", "turns", "phases", "passes", "tools", "messages", "layers")


class LsOptions(OptionGroup):
    """Options of ``trace ls``."""

    folder: str | None = argument("FOLDER", nargs="?")
    """folder of traces (default: the one in the state folder)"""
    limit: int = option("N", type=count, default=20)
    """list at most N runs; 0: all"""


class ShowOptions(OptionGroup):
    """Options of ``trace show``."""

    trace: str = argument("TRACE", TRACE)
    layers: bool = option()
    """also show the time of each layer"""
    tuning: bool = option()
    """show the run's execution policy and the reasons for it"""
    events: bool = option()
    """show the recorded events"""
    show_prompt: int | None = option("TURN", type=positive, nargs="?", const=0)
    """show the prompt of the last turn, or of TURN, as the model read it"""
    svg: str | None = option("FILE")
    """also draw the timeline as an SVG file"""


class DiffOptions(OptionGroup):
    """Options of ``trace diff``."""

    first: str = argument("A", TRACE)
    second: str = argument("B")
    """the run to compare with"""


class ExportOptions(OptionGroup):
    """Options of ``trace export``."""

    traces: list[str] = argument("TRACE", f"{TRACE}; or a folder of traces", nargs="+")
    format: str = option(choices=FORMATS, required=True)
    """output format"""
    output: str | None = option("-o", "FILE")
    """file to write (default: standard output)"""
    table: str = option(choices=TABLES, default="phases")
    """table to export as csv or parquet"""
    include_content: bool = option()
    """with otlp-json: include questions, answers and tool results"""


class ViewOptions(OptionGroup):
    """Options of ``trace view``."""

    traces: list[str] = argument(
        "TRACE", f"{TRACE}; or a folder of traces (default: last)", nargs="*"
    )
    output: str | None = option("-o", "FILE")
    """page to write (default: TRACE.html)"""
    open: bool = option()
    """open the page in the browser"""


class QueryOptions(OptionGroup):
    """Options of ``trace query``."""

    sql: str = argument("SQL", f"query over the tables {', '.join(TABLES)}")
    traces: list[str] = argument("TRACE", nargs="*")
    """a database from `trace ingest`, or traces and folders (default: the state folder's); may also
    come before the SQL"""


def add_options(verb: argparse.ArgumentParser) -> None:
    """Add the commands."""
    commands = add_commands(verb)
    commands.add(ls, LsOptions)
    commands.add(show, ShowOptions)
    commands.add(diff, DiffOptions)
    commands.add(export, ExportOptions, json=False)
    commands.add(view, ViewOptions, json=False)
    commands.add(query, QueryOptions, TableFormat)
    commands.add(ingest, IngestOptions)
    commands.add(report, ReportOptions, TableFormat)
    commands.add(rm, RemovingOptions.of("trace"))


def ls(args: argparse.Namespace, output: Output) -> None:
    """List the recorded runs, newest first."""
    from ...traces import report
    from ...traces.find import files, load_all

    folder = _folder(args.folder)
    kept = files(folder)
    shown = kept[: args.limit] if args.limit else kept
    found = list(load_all(shown))
    if not found:
        output.line(f"no traces in {folder}")
    else:
        output.headed(report.of_many(found).lines())
        if len(kept) > len(shown):
            output.line(f"and {len(kept) - len(shown)} older ones (--limit 0 lists all)", "dim")
    output.json({"folder": str(folder), "traces": [_listed(path, t) for path, t in found]})


def _listed(path: Path, trace: Trace | TraceError) -> dict[str, Any]:
    if isinstance(trace, TraceError):
        return {"file": str(path), "error": str(trace)}
    from ...traces import tables

    return {"file": str(path), "runs": list(tables.rows(trace, "runs"))}


def show(args: argparse.Namespace, output: Output) -> None:
    """Show a run's timeline, regimes and times."""
    check_outputs(args.svg)
    trace = _load(args.trace)
    if args.events:
        from ...traces.writer import to_ascii, to_json

        for event in trace.events:
            output.line(to_ascii(None, "", to_json(event.model_dump())))
        output.json({"trace": str(trace.path), "events": [e.model_dump() for e in trace.events]})
        return
    if args.show_prompt is not None:
        return _show_prompt(trace, args.show_prompt, output)
    for one in trace.runs:
        _show_run(one, output, layers=args.layers, tuning=args.tuning)
    if args.svg:
        _draw(trace, args)
        output.line(args.svg)
    show_rest(output, trace)
    profiled = [[layer.model_dump() for layer in phase.layers] for phase in trace.phases]
    output.json({**trace_json(trace), **({"layers": profiled} if args.layers else {})})


def _show_prompt(trace: Trace, turn: int, output: Output) -> None:
    """Print what the model read in a turn of the last run; this needs its tokenizer."""
    from ..replay.workload import chosen_run, recorded_prompt
    from .engine_from_trace import tokenizer_of

    run, header = chosen_run(trace, -1)
    ledger = recorded_prompt(run, header, turn)
    show_prompt(output, ledger, tokenizer_of(header), trace=str(trace.path))


def _draw(trace: Trace, args: argparse.Namespace) -> None:
    """Write the terminal output of a trace as a picture."""
    from .svg_capture import SvgCapture

    picture = SvgCapture()
    for one in trace.runs:
        _show_run(one, picture, layers=args.layers, tuning=args.tuning)
    title = printable(f"triplepoint trace show {args.trace}")
    with atomic_write(args.svg) as file:
        file.write(picture.svg(title))


def _show_run(trace: Trace, output: Output, *, layers: bool, tuning: bool) -> None:
    from ...traces import report

    if trace.header is not None:
        show_header(output, trace.header)
        if trace.redacted:
            output.line("redacted: this run was recorded without its text and token ids", "yellow")
        show_parent(output, trace)
    output.line()
    if not trace.phases:
        for turn in trace.turns:
            show_turn(output, turn)
    else:
        output.timeline(trace)
        output.line()
        output.headed(report.by_turn(trace).lines())
        output.line()
        output.headed(report.by_regime(trace).lines())
    if tuning:
        output.line()
        output.headed(report.of_tuning(trace))
    if layers:
        profiles = report.by_layer(trace)
        if not profiles:
            output.line()
            output.line("no times by layer: record the run with --profile", "yellow")
        for title, table in profiles:
            output.line()
            output.line(title, "bold")
            output.headed(table.lines())
    show_end(output, trace)
    output.line()


def diff(args: argparse.Namespace, output: Output) -> int:
    """Compare the tokens, regimes and times of two runs.

    The status is 1 if a token differs.
    """
    from ...traces import report
    from ...traces.diff import compare

    found = compare(_load(args.first), _load(args.second))
    lines = report.verdict(found)
    settings = len(found.settings) or 1
    for line in lines[:settings]:
        output.line(line, "dim")
    output.line()
    output.headed(report.of_pairs(found).lines())
    output.line()
    for line in lines[settings:]:
        output.line(line)
    output.json(_diff_json(found))
    return 0 if found.same_tokens else 1


def _diff_json(found: Diff) -> dict[str, Any]:
    first, second = found.total()
    return {
        "settings": [{"name": n, "first": a, "second": b} for n, a, b in found.settings],
        "same_tokens": found.same_tokens,
        "tokens_known": found.tokens_known,
        "first_difference": vars(found.first_difference) if found.first_difference else None,
        "regime_changes": len(found.regime_changes),
        "first_s": first,
        "second_s": second,
        "phases": [
            {
                "turn": pair.either.turn,
                "step": pair.either.step,
                "phase": pair.either.phase,
                "purpose": pair.either.purpose,
                "regimes": [p.regime if p else None for p in (pair.first, pair.second)],
                "tokens": [p.tokens if p else None for p in (pair.first, pair.second)],
                "wall_s": [p.wall_s if p else None for p in (pair.first, pair.second)],
                "time_ratio": pair.time_ratio,
            }
            for pair in found.phases
        ],
        "answers": list(found.answers),
    }


def export(args: argparse.Namespace, output: Output) -> None:
    """Export traces to formats of other tools."""
    traces = _load_many(args.traces)
    if args.format == "parquet":
        from ...traces.export_tables import write_parquet

        if not args.output:
            raise SettingError("parquet is binary: give a file with -o FILE.parquet")
        count = write_parquet(traces, args.table, Path(args.output))
        output.line(f"{count:,} rows of {args.table} in {args.output}", "dim")
        return
    if not args.output:
        _export(args, traces, sys.stdout)
        return
    with atomic_write(args.output) as file:
        _export(args, traces, file)
    output.line(f"{args.format} in {args.output}", "dim")


def _export(args: argparse.Namespace, traces: list[Trace], file: Any) -> None:
    if args.format == "csv":
        from ...traces.export_tables import write_csv

        write_csv(traces, args.table, file)
        return
    if args.format == "perfetto":
        from ...traces.export_perfetto import document

        body = document(traces)
    else:
        from ...traces.export_otlp import document

        body = document(traces, content=args.include_content)
    json.dump(body, file, allow_nan=False, separators=(",", ":"))
    file.write("\n")


def view(args: argparse.Namespace, output: Output) -> None:
    """Write an HTML page to browse runs; concurrent ones appear as lanes."""
    from ...traces.view import page

    names = args.traces or ["last"]
    traces = _load_many(names)
    folder = Path(names[0]).resolve()
    stem = (folder if folder.is_dir() else traces[0].path or Path()).stem
    target = Path(args.output) if args.output else Path(f"{stem or 'traces'}.html")
    text = page(traces)
    with atomic_write(target) as file:
        file.write(text)
    output.line(f"{target}")
    if args.open:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())


def query(args: argparse.Namespace, output: Output) -> None:
    """Query traces or an ingested database with SQL (needs duckdb)."""
    from ...traces import export_tables
    from ...traces.warehouse.reading import is_warehouse

    if args.traces and (
        (_is_there(args.sql) and not _is_there(args.traces[-1]))
        or (_is_sql(args.traces[-1]) and not _is_sql(args.sql))
    ):
        *others, sql = args.traces  # the file first, as other programs have it
        args.sql, args.traces = sql, [args.sql, *others]
    if len(args.traces) == 1 and is_warehouse(Path(args.traces[0])):
        return trace_warehouse.query(args, output, Path(args.traces[0]))
    traces = _load_many(args.traces or [str(default_folder())])
    names, rows = export_tables.query(traces, args.sql, trace_warehouse.ended_by_interrupt())
    if args.format == "csv":
        trace_warehouse.write_csv(names, rows)
    else:
        trace_warehouse.show_rows(output, names, rows)


def _is_sql(word: str) -> bool:
    """Return whether a word begins an SQL statement, so that the other one must be a file."""
    return re.match(r"\s*(select|with|from)\s", word, re.IGNORECASE) is not None


def _is_there(word: str) -> bool:
    from ...traces.warehouse.reading import is_warehouse

    try:
        return Path(word).exists() or is_warehouse(Path(word))
    except (OSError, ValueError):  # too long for a path, or with a NUL in it
        return False


def _load(name: str) -> Trace:
    from .engine_from_trace import load_trace

    return load_trace(name)


def _load_many(names: Iterable[str]) -> list[Trace]:
    """Load the traces of files and folders; skip unreadable ones in a folder, with a note."""
    from ...traces.find import files, load_all

    traces: list[Trace] = []
    for name in names:
        if not Path(name).is_dir():
            traces.append(_load(name))
            continue
        for path, trace in load_all(reversed(files(Path(name)))):
            if isinstance(trace, TraceError):
                print(
                    f"triplepoint: left out {printable(str(path))}: {printable(str(trace))}",
                    file=sys.stderr,
                )
            else:
                traces.append(trace)
    if not traces:
        raise TraceError(f"no traces in {', '.join(names)}")
    return traces


def _folder(name: str | None) -> Path:
    if name is None:
        return default_folder()
    path = Path(name)
    if not path.is_dir():
        raise TraceError(f"{path} is not a folder")
    return path


def rm(args: argparse.Namespace, output: Output) -> int:
    """Remove traces from the state folder, or the named ones.

    Those of the library are never removed.
    """
    from ...traces.find import resolve
    from ...traces.retention import remove, with_stat
    from ..replay import examples

    def by_name(name: str) -> Path:
        path = resolve(name, default_folder())
        if examples.holds(path):
            raise TraceError(f"{path} is a recorded example and is not removed")
        if not path.is_file():
            raise TraceError(f"no such trace: {path}")
        return path.parent.resolve() / path.name

    def kept() -> list[tuple[Path, float]]:
        return [(path, about.st_mtime) for path, about in with_stat(default_folder()).items()]

    sizes: dict[Path, int] = {}
    for path in chosen(args, by_name, kept):
        with suppress(FileNotFoundError):  # another process removed it
            sizes[path] = path.stat().st_size
    lines = [(str(path), nbytes) for path, nbytes in sizes.items()]
    nothing = f"no such traces in {default_folder()}"
    if (status := agreed(lines, nothing, args, output)) is not None:
        return status
    gone: list[Path] = []
    for path in sizes:
        try:
            remove(path)
            gone.append(path)
        except TraceError as error:
            output.error(str(error))
    if not gone:  # each has been told why
        output.json({"removed": [], "freed": 0})
        return 1
    report_removed([str(path) for path in gone], sum(sizes[path] for path in gone), output)
    return 0 if len(gone) == len(sizes) else 1
