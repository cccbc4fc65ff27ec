"""The arguments of ``triplepoint trace`` and its commands."""

from __future__ import annotations

import argparse
import re

FORMATS = ("perfetto", "otlp-json", "csv", "parquet")
TABLES = ("runs", "turns", "phases", "passes", "tools", "messages", "layers")
_AGE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([mhdw])")
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
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
        "-n", "--limit", type=int, default=20, metavar="N", help="at most N; 0: all (20)"
    )
    _json(ls)

    show = _command(commands, "show", "one run: its timeline, regimes and times")
    show.add_argument("trace", metavar="TRACE", help=_TRACE)
    show.add_argument("--layers", action="store_true", help="the time of each layer too")
    show.add_argument(
        "--tuning", action="store_true", help="the execution policy of the run, and why"
    )
    show.add_argument("--events", action="store_true", help="the events as they were recorded")
    show.add_argument("--svg", metavar="FILE", help="write what it shows as a picture too")
    _json(show)

    diff = _command(commands, "diff", "two runs side by side: tokens, regimes, times")
    diff.add_argument("first", metavar="A", help=_TRACE)
    diff.add_argument("second", metavar="B", help="the same")
    _json(diff)

    export = _command(commands, "export", "write traces in formats of other tools")
    export.add_argument("traces", nargs="+", metavar="TRACE", help=f"{_TRACE}; or a folder")
    export.add_argument("--format", choices=FORMATS, required=True, help="which one")
    export.add_argument("-o", "--output", metavar="FILE", help="file to write (standard output)")
    export.add_argument("--table", choices=TABLES, default="phases", help="of csv and parquet")
    export.add_argument(
        "--include-content",
        action="store_true",
        help="otlp-json: with questions, answers and results",
    )

    view = _command(commands, "view", "one HTML page to look through runs; at once: as lanes")
    view.add_argument("traces", nargs="*", metavar="TRACE", help=f"{_TRACE}; or a folder (last)")
    view.add_argument("-o", "--output", metavar="FILE", help="the page (TRACE with .html)")
    view.add_argument("--open", action="store_true", help="open it in the browser")

    query = _command(commands, "query", "SQL over a folder of traces (needs duckdb)")
    query.add_argument("sql", metavar="SQL", help=f"over the tables {', '.join(TABLES)}")
    query.add_argument(
        "traces", nargs="*", metavar="TRACE", help="traces or folders (the state folder's)"
    )
    _json(query)

    rm = _command(commands, "rm", "remove traces of the state folder, or those that are named")
    add_removing(rm, "trace")
    _json(rm)


def add_sessions(verbs: argparse._SubParsersAction) -> None:
    """Add ``session`` with its commands; the chosen one is in ``command``."""
    summary = "list, show and remove conversations that --session has kept; needs no model"
    session = verbs.add_parser("session", help=summary, description=_sentence(summary))
    session.set_defaults(json=False)
    commands = session.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    commands.required = True

    _json(_command(commands, "ls", "the sessions, the one that --continue takes first"))

    show = _command(commands, "show", "one session: its model, its folder, and what was said")
    show.add_argument("name", metavar="SESSION", help="its name")
    _json(show)

    rm = _command(commands, "rm", "remove sessions with their KV caches")
    add_removing(rm, "session")
    _json(rm)


def add_removing(verb: argparse.ArgumentParser, what: str) -> None:
    """The arguments that say which of the kept things go."""
    verb.add_argument("names", nargs="*", metavar=what.upper(), help=f"{what}s by name")
    verb.add_argument(
        "--older-than", type=age, metavar="AGE", help="those written last before 12h, 30d, 8w"
    )
    verb.add_argument("--all", action="store_true", help="all that are kept")
    verb.add_argument("-y", "--yes", action="store_true", help="do not ask before removing")


def age(text: str) -> float:
    """A number of minutes, hours, days or weeks, in seconds."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age like 45m, 12h, 30d or 8w")
    return float(found[1]) * _UNITS[found[2]]


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _command(
    commands: argparse._SubParsersAction, name: str, summary: str
) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:])


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--json", action="store_true", help="print one JSON object instead of text"
    )
