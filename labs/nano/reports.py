"""Output of programs that fail, in the layouts of real machines.

Each report in `reports.txt` is written as lines with slots (`log_texts.fill`). What an answer
repeats stands between `«` and `»`; `?` begins a line that only the second, weaker search finds. `*`
stands for harmless lines of the same program, which `~` gives. A report whose message no search
shows begins with `@`: there the lines behind the hit are read. The number in a heading is its
weight. Where several lines have a quote, the first is the answer and the others are the next ones.

Which part of the line is quoted has one rule, so that its looks tell. Not quoted is what stands
before the message: time, host, `program[pid]:`, what is in brackets, a place in a source before
`error:`, the bare level (`ERROR`, `[error]`, `fatal:`, `FAILED`), and a name that a ` - `, a ` : `
or a sign without spaces sets off. All else is quoted, to the end of the line: the class of an
exception, a code behind the level (`TS2304:`), a name with a colon (`belt-2: …`), a phrase that
only ends in `error:`, and the whole line where a program says no more than its own name
(`cp: …`). In JSON, logfmt and tables it is the value alone, of `error` before that of `msg`. A line
that only announces (`Traceback`, `Exception in …`, npm's `code`, the name of a test whose
assertion follows) is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from .log_lines import MONTHS
from .log_texts import HARMLESS, Slots, event, failure, fill
from .logs import EXCEPTIONS, Log, make_log
from .marks import holds_mark
from .words import Lexicon
from .writer import Writer


@cache
def reports() -> tuple[str, ...]:
    """Return the reports of `reports.txt`, each repeated by its weight."""
    text = Path(__file__).with_name("reports.txt").read_text(encoding="utf-8")
    parts = re.split(r"^=== \w+ (\d+)\n", text, flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return tuple(body.rstrip("\n") for often, body in pairs for _ in range(int(often)))


FAILED = (  # hold a word that the first search is for
    "Failed to {w} {w}: {m}", "Failed password for {w} from {h} port {n} ssh2", "{w} failed: {m}",
    "{m}: operation failed", "({w}) CMD failed: {m}", "Backup of {w} failed: {m}",
    "segfault at {x} ip {x}", "{C}Error: {m}", "{w} failed with exit code {d}",
    "Fatal error in {w}: {m}", "{w} panicked: {m}", "Job {w} aborted: {m}",
)  # fmt: skip
ABORTS = (
    "Aborted (core dumped)", "Segmentation fault (core dumped)", "Killed", "{w} killed by "
    "signal {d}",
    "{w} FAILED: {m}", "aborting: {m}", "Out of memory: {m}", "oom-killer: killed {w} ({n})",
    "Exception: {m}", "{w} failed, {m}", "Build failed: {m}", "Deployment of {w} failed",
)  # fmt: skip
SILENT = (  # no word of the first search; one of the second
    "cannot open {p}: Permission denied", "connection to {h}:{n} refused", "could not {w} the {w}",
    "connect to {h} port {n}: Connection refused", "{p}: No such file or directory", "{w} not "
    "found",
    "{w} timed out after {n} s", "unable to {w} {w} on {h}", "permission denied for {w}",
    "rsync: {w} {w}: Connection timed out ({n})", "could not resolve {h}", "disk is full, "
    "cannot write {p}",
    "{w}: command not found", "lost connection to {h}", "certificate of {h} has expired",
    "{w} exited with code {d}", "login of {w} denied", "invalid {w} in {p}", "can't {w} {w}: "
    "{w} {w}",
    "{h} is unreachable", "request to {h} rejected: {w} {w}", "checksum of {p} is corrupt",
)  # fmt: skip
SYSTEM_SAYS = (  # strerror; all but the last four hold a word of the second search
    "Connection refused", "Permission denied", "No such file or directory", "Connection timed out",
    "Operation timed out", "Network is unreachable", "Invalid argument", "No such device",
    "No space left on device", "Broken pipe", "Connection reset by peer", "Device or resource busy",
)  # fmt: skip
JAVA_SAYS = (
    "IllegalStateException IllegalArgumentException NullPointerException NoSuchElementException "
    "ClassNotFoundException UnsupportedOperationException NumberFormatException"
)
UNMARKED = (  # classes of exceptions that no search finds
    "InvalidOperation DoesNotExist StopIteration NoResultFound Unavailable ReadTimeout "
    "KeyboardInterrupt NotFound CommandTimeout ConfigMissing BadRequest"
)
ASSERTIONS = (  # what pytest says of a test that failed
    "assert {n} == {n}", "assert {v} == {v}", "assert '{w}' in '{w} {w}'",
    "assert None is not None",
    "assert not True", "assert '{w}' == '{w}'", "assert {n} < {n}", "assert [{n}, {n}] == [{n}]",
    "AssertionError: assert {n} == {n}", "AssertionError: assert '{w}' == '{w} {w}'",
    "AssertionError: {w} {w} {w}", "assert {'{w}': {n}} == {'{w}': {n}, '{w}': {n}}",
    "AssertionError: assert {'{w}': '{w}'} == {'{w}': '{w}'}", "{C}Error: {m}", "{e}: {m}",
    "assert {n} == ({n} + {n})", "assert {i}({n}) is False", "assert len([]) == {n}",
    "assert <Response [{n}]>.status_code == {n}", "assert ({w} and {w})",
)  # fmt: skip
NGINX_SAYS = (
    "connect() failed (111: Connection refused) while connecting to upstream",
    'open() "{p}" failed (2: No such file or directory)',
    "upstream timed out (110: Connection timed out) while reading response header from upstream",
    "no live upstreams while connecting to upstream", "{m}",
)  # fmt: skip


def message(words: Lexicon) -> str:
    """Return an error text, mostly without a word that marks an error by itself."""
    while '"' in (text := failure(words)) or "\\" in text:
        pass
    return text


def long_message(words: Lexicon) -> str:
    """Return a long error text: parts that commas, colons and parentheses join."""
    rng = words.rng
    text = message(words)
    for _ in range(rng.randint(1, 3)):
        join = rng.choice((", ", ": ", "; ", " - ", " (", " because ", " while ", ". "))
        text += join + message(words) + ")" * (join == " (")
    return text


def _more(words: Lexicon) -> Slots:
    """Return slots of reports that other texts do not have."""
    rng = words.rng
    month = rng.choice(MONTHS)
    day, year = rng.randint(1, 28), rng.randint(2019, 2027)
    host, seconds = words.word() + rng.choice(("", f"-{rng.randrange(20)}")), rng.randrange(80_000)
    clock = [seconds]

    def time() -> str:
        clock[0] = min(clock[0] + rng.randrange(40), 86_399)
        minutes, second = divmod(clock[0], 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"

    same = {slot: make() for slot, make in (
        ("{e}", lambda: rng.choice(EXCEPTIONS.split())), ("{m}", lambda: message(words)),
        ("{C}", lambda: words.word().capitalize() + words.word().capitalize()),
    )}  # fmt: skip

    def one(texts: tuple[str, ...]) -> Callable[[], str]:
        return lambda: fill(words, rng.choice(texts), slots)

    slots: Slots = {
        "{^}": lambda: "^" * rng.randint(3, 30),
        "{~}": lambda: "~" * rng.randint(2, 9) + "^" * rng.randint(1, 20),
        "{e2}": lambda: rng.choice(("error", "Error", "fatal", "ERROR", "panic", "FATAL")),
        "{e3}": lambda: rng.choice(("error", "fatal", "err", "critical")),
        "{E}": lambda: rng.choice(("ERROR", "error", "ERR", "FATAL", "CRIT", "SEVERE", "Error")),
        "{pe}": lambda: rng.choice(("ERROR", "ERROR", "FATAL", "PANIC")),
        "{fe}": lambda: rng.choice(("error", "error", "fatal error")),
        "{c}": lambda: rng.choice(("info", "info", "debug", "warn")),
        "{c2}": lambda: rng.choice(("INFO", "INFO", "DEBUG", "WARN")),
        "{l}": lambda: rng.choice(("error", "error", "crit", "emerg", "alert")),
        "{e}": lambda: same["{e}"],
        "{m}": lambda: same["{m}"],
        "{C}": lambda: same["{C}"],
        "{W}": lambda: words.word().capitalize(),
        "{K}": lambda: rng.choice(("ELIFECYCLE", "ENOENT", "ERESOLVE", "EACCES", "E404")),
        "{d}": lambda: str(rng.randrange(10)),
        "{x}": lambda: "".join(rng.choices("0123456789abcdef", k=rng.choice((4, 8, 12)))),
        "{M}": lambda: month,
        "{D}": lambda: f"{day:2d}",
        "{D2}": lambda: f"{day:02d}",
        "{Y}": lambda: str(year),
        "{H}": lambda: host,
        "{T}": time,
        "{I}": lambda: f"{year}-{day % 12 + 1:02d}-{day:02d}T{time()}",
        "{event}": lambda: _calm(words),
        "{F}": one(FAILED),
        "{A}": one(ABORTS),
        "{S}": one(SILENT),
        "{no}": lambda: rng.choice(SYSTEM_SAYS),
        "{sno}": lambda: rng.choice(SYSTEM_SAYS[:-4]),
        "{jx}": lambda: rng.choice(JAVA_SAYS.split()),
        "{js}": lambda: rng.choice(("TypeError", "ReferenceError", "SyntaxError", "RangeError")),
        "{day}": lambda: rng.choice(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")),
        "{ms}": lambda: f"{rng.randrange(1000):03d}",
        "{id}": lambda: "".join(rng.choices("0123456789abcdef", k=12)),
        "{port}": lambda: str(rng.choice((80, 443, 3306, 5432, 6379, 8000, 8080, 9092))),
        "{N}": one(NGINX_SAYS),
        "{u}": lambda: rng.choice(UNMARKED.split()),
        "{as}": one(ASSERTIONS),
        "{as0}": one(ASSERTIONS[:8]),
        "{as1}": one(ASSERTIONS[:14]),
        "{as2}": one(ASSERTIONS[:8]),
        "{m2}": lambda: message(words),
        "{L}": lambda: long_message(words),
    }  # fmt: skip
    return slots


def _calm(words: Lexicon) -> str:
    while '"' in (text := event(words)) and words.rng.random() < 0.9:
        pass
    return text


def make_report(words: Lexicon, size: int) -> Log:
    """Generate a report of about `size` lines: one failure among other output."""
    if words.pool or words.rng.random() < 0.33:
        return _write(words, size)
    with words.few(words.rng.randint(4, 30)):
        return _write(words, size)


def make_quiet(words: Lexicon, size: int) -> Log:
    """Generate output of the same programs without a failure; some lines have words of errors."""
    rng = words.rng
    while True:
        rows = rng.choice(reports()).removeprefix("@").split("\n")
        spare = [row[1:] for row in rows if row.startswith("~")]
        if not spare:
            continue
        words.talks_of_errors = False
        slots = _more(words)
        first = rows[: rows.index("*")] if "*" in rows else []
        lines = [
            fill(words, row, slots) for row in first if not row.startswith("?") and "«" not in row
        ]
        made = [fill(words, rng.choice(spare), slots) for _ in range(min(max(1, size), 25))]
        if size > 25:
            made = rng.choices(made, k=size)
        lines = [row for row in lines + made if not holds_mark(row)]
        if not lines:
            continue
        if rng.random() < 0.6:
            for _ in range(rng.choice((1, 1, 2, 3))):
                text = fill(words, rng.choice(HARMLESS))
                row = fill(words, rng.choice(spare).replace("{event}", text), slots)
                row = row if text in row and rng.random() < 0.7 else text
                if row == text or not holds_mark(row.replace(text, "")):
                    lines.insert(rng.randint(0, len(lines)), row)
        return Log(lines=lines)


def _write(words: Lexicon, size: int) -> Log:
    rng = words.rng
    pattern = rng.choice(reports())
    words.talks_of_errors = rng.random() < 0.1
    slots = _more(words)
    log = Log(hidden=pattern.startswith("@"))
    rows = pattern.removeprefix("@").split("\n")
    spare = [row[1:] for row in rows if row.startswith("~")]
    fixed = [row for row in rows if not row.startswith("~")]
    # A word of the first search would hide what only the second finds.
    harmless = not any(row.startswith("?") for row in fixed)
    count = max(0, size - len(fixed)) if "*" in fixed else 0
    before = rng.randint(0, count)
    for row in fixed:
        if row == "*":
            log.lines += _spare(words, spare, before, slots, harmless)
            continue
        log.weak = log.weak or row.startswith("?")
        text = fill(words, row.removeprefix("?"), slots)
        if "«" in text:
            log.errors.append(text[text.index("«") + 1 : text.rindex("»")])
            text = text.replace("«", "").replace("»", "")
            log.places.append(len(log.lines) + 1)
            log.rows.append(text)
        log.lines.append(text)
    log.lines += _spare(words, spare, count - before, slots, harmless)
    return log


def _spare(words: Lexicon, spare: list[str], count: int, slots: Slots, harmless: bool) -> list[str]:
    """Return lines without a failure; many of a long run are equal."""
    rng = words.rng
    if not spare:
        return []
    made = [fill(words, rng.choice(spare), slots) for _ in range(min(count, 25))]
    if count > 25:
        made = rng.choices(made, k=count)
    if harmless and count and rng.random() < 0.3:
        for _ in range(rng.choice((1, 1, 2))):
            made[rng.randrange(count)] = fill(words, rng.choice(HARMLESS))
    return made


def some_log(writer: Writer, size: int = 0) -> Log:
    """Return a log or report of about `size` lines if given; one in nine has no error."""
    rng = writer.rng
    size = size or log_size(writer)
    if writer.long:  # many hits
        return make_log(writer.words, size, max(3, writer.lines()))
    roll = rng.random()
    if roll < 0.45:
        return make_report(writer.words, size)
    if roll < 0.51:
        return make_quiet(writer.words, size)
    count = 0 if roll < 0.57 else 1 if roll < 0.85 else rng.choice((2, 2, 3, 3, 6, 20))
    return make_log(writer.words, size, count)


def log_size(writer: Writer) -> int:
    """Draw the lines of a log, which is never read as a whole: from a few to some thousand."""
    rng = writer.rng
    roll = rng.random()
    if roll < 0.5:
        return writer.lines()
    return rng.randint(20, 150) if roll < 0.85 else rng.randint(150, 6000)
