"""The arguments of ``triplepoint trace`` and its commands."""

from __future__ import annotations

import argparse

FORMATS = ("perfetto", "otlp-json", "csv", "parquet")
TABLES = ("runs", "turns", "phases", "tools", "messages", "layers")
_TRACE = "trace file; the name of a run, or its beginning; or `last`"


def add_trace(verbs: argparse._SubParsersAction) -> None:
    """Add the verb with its commands; the chosen one is in ``command``."""
    summary = "list, show, compare, export, view and query recorded runs; needs no model"
    trace = verbs.add_parser("trace", help=summary, description=summary[0].upper() + summary[1:])
    trace.set_defaults(json=False)
    commands = trace.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    commands.required = True

    ls = _command(commands, "ls", "the recorded runs, the newest first")
    ls.add_argument("folder", nargs="?", metavar="FOLDER", help="folder (the state folder's)")
    ls.add_argument(
        "-n", "--most", type=int, default=20, metavar="N", help="at most N; 0: all (20)"
    )
    _json(ls)

    show = _command(commands, "show", "one run: its timeline, regimes and times")
    show.add_argument("trace", metavar="TRACE", help=_TRACE)
    show.add_argument("--layers", action="store_true", help="the time of each layer too")
    show.add_argument("--tuning", action="store_true", help="how passes were played, and why")
    show.add_argument("--events", action="store_true", help="the events as they were recorded")
    show.add_argument("--svg", metavar="FILE", help="write what it shows as a picture too")
    _json(show)

    diff = _command(commands, "diff", "two runs side by side: tokens, regimes, times")
    diff.add_argument("first", metavar="A", help=_TRACE)
    diff.add_argument("second", metavar="B", help="the same")
    _json(diff)

    export = _command(commands, "export", "traces in the formats of other programs")
    export.add_argument("traces", nargs="+", metavar="TRACE", help=f"{_TRACE}; or a folder")
    export.add_argument("--format", choices=FORMATS, required=True, help="which one")
    export.add_argument("-o", "--output", metavar="FILE", help="where to (standard output)")
    export.add_argument("--table", choices=TABLES, default="phases", help="of csv and parquet")
    export.add_argument(
        "--content", action="store_true", help="otlp-json: with questions, answers and results"
    )

    view = _command(commands, "view", "one HTML page to look through a run or a folder of them")
    view.add_argument(
        "trace", nargs="?", default="last", metavar="TRACE", help=f"{_TRACE}; or a folder"
    )
    view.add_argument("-o", "--output", metavar="FILE", help="the page (TRACE with .html)")
    view.add_argument("--open", action="store_true", help="open it in the browser")

    query = _command(commands, "query", "SQL over a folder of traces (needs duckdb)")
    query.add_argument("sql", metavar="SQL", help=f"over the tables {', '.join(TABLES)}")
    query.add_argument(
        "traces", nargs="*", metavar="TRACE", help="traces or folders (the state folder's)"
    )
    _json(query)


def _command(
    commands: argparse._SubParsersAction, name: str, summary: str
) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:])


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--json", action="store_true", help="print one JSON object instead of text"
    )
