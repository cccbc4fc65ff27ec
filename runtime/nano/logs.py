"""Log files of many shapes, with the one message that says what went wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .words import Lexicon

CLEAR = ("INFO", "INFO", "INFO", "INFO", "DEBUG", "DEBUG", "WARN", "WARNING", "NOTICE", "TRACE")
BAD = ("ERROR", "ERROR", "ERROR", "ERROR", "FATAL", "CRITICAL", "SEVERE")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
EXCEPTIONS = (
    "ValueError KeyError TypeError RuntimeError IndexError OSError ConnectionError TimeoutError "
    "FileNotFoundError PermissionError AttributeError ZeroDivisionError ImportError MemoryError"
)

# {w} a word, {v} a value, {n} a number, {h} a host, {p} an absolute path, {i} an identifier
FAILURES = (
    "connection to {h}:{n} refused",
    "Connection refused: {h}:{n}",
    "cannot open {p}: Permission denied",
    "{p}: No such file or directory",
    "disk full on {p}",
    "No space left on device: {p}",
    "timeout after {n} ms waiting for {w}",
    "{w} timed out after {n}s",
    "failed to {w} {w}: {w} {w}",
    "failed to load {i} from {p}",
    "Failed to connect to {w} at {h}",
    "could not {w} {i}: {v}",
    "unable to {w} the {w}",
    "out of memory in {i}",
    "invalid {w} '{w}' in {i}",
    "unexpected {w} at line {n}",
    "{w} {n} not found",
    "user {w} is not allowed to {w}",
    "{i} returned {n}",
    "{i}: {w} {w} {w}",
    "HTTP {n} from {h}",
    "database {w} is locked",
    "certificate for {h} has expired",
    "{w} process exited with code {n}",
    "segmentation fault in {i}",
    "lost {w} with {n} {w} pending",
    "missing key '{w}' in {p}",
    "too many open {w}: {n}",
    "authentication failed for {w}@{h}",
    "checksum mismatch: {v} != {v}",
)
EVENTS = (
    "{w} started",
    "started {w} on {h}:{n}",
    "{w} {w} finished in {n} ms",
    "listening on {h}:{n}",
    "loaded {n} {w} from {p}",
    "user {w} logged in",
    "GET /{w}/{w} {n}",
    "POST /{w} {n} {n}ms",
    "connected to {w} at {h}",
    "cache {w} hit {n}",
    "retry {n} of {n}",
    "{i}={v}",
    "{w}: {w} {w} {v}",
    "{w} {w} {w}",
    "{w} {w} {w} {w} {w}",
    "opening {p}",
    "wrote {n} bytes to {p}",
    "heartbeat ok",
    "shutting down {w}",
    "slow {w}: {n} ms",
    "queue {w} has {n} {w}",
)
HARMLESS = (  # lines that speak of errors and report none
    "0 errors, {n} {w}",
    "no errors found in {p}",
    "error_rate=0.{n}",
    "error handler {i} registered",
    "errors: 0",
    "on_error={w}",
    "finished without error",
    "previous error cleared",
)


@dataclass(slots=True)
class Log:
    """A log file's lines and, in order, the messages of its errors and their line numbers."""

    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


def fill(words: Lexicon, pattern: str) -> str:
    """`pattern` with every slot filled anew."""
    makers = {
        "{w}": words.word,
        "{v}": words.value,
        "{n}": words.number,
        "{h}": words.host,
        "{p}": words.absolute_path,
        "{i}": words.identifier,
    }
    out: list[str] = []
    rest = pattern
    while True:
        head, brace, tail = rest.partition("{")
        out.append(head)
        if not brace:
            return "".join(out)
        out.append(makers["{" + tail[:2]]())
        rest = tail[2:]


def failure(words: Lexicon, stock: Sequence[str] = ()) -> str:
    """What an error says; now and then it begins like one of the harmless texts in `stock`."""
    if stock and words.rng.random() < 0.3:
        start = words.rng.choice(stock).split(" ")
        return " ".join([*start[: words.rng.randint(1, 3)], failure(words)])
    roll = words.rng.random()
    if roll < 0.55:
        text = fill(words, words.rng.choice(FAILURES))
    elif roll < 0.85:
        text = words.phrase(2, 7)
    else:
        text = f"{words.phrase(1, 3)} {words.value()} {words.phrase(1, 2)}"
    return text[0].upper() + text[1:] if words.rng.random() < 0.4 else text


def event(words: Lexicon) -> str:
    """What a line says that is no error."""
    roll = words.rng.random()
    if roll < 0.06:
        text = fill(words, words.rng.choice(HARMLESS))
    elif roll < 0.68:
        text = fill(words, words.rng.choice(EVENTS))
    elif roll < 0.78:
        return words.sentence()
    else:
        text = words.phrase(2, 6)
    return text[0].upper() + text[1:] if words.rng.random() < 0.4 else text


class Clock:
    """Times that go forward, in one format."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seconds = rng.randrange(80_000)
        self.year, self.month, self.day = rng.randint(2019, 2027), rng.randint(1, 12), 1
        self.day = rng.randint(1, 28)
        self.style = rng.randrange(6)

    def hms(self) -> str:
        """`10:11:12`, a little later than the last."""
        self.seconds = min(self.seconds + self.rng.randrange(40), 86_399)
        minutes, second = divmod(self.seconds, 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"

    def date(self, sign: str = "-") -> str:
        return f"{self.year}{sign}{self.month:02d}{sign}{self.day:02d}"

    def stamp(self) -> str:
        time = self.hms()
        if self.style == 0:
            return f"{self.date()} {time}"
        if self.style == 1:
            return f"{self.date()}T{time}Z"
        if self.style == 2:
            return f"{self.date()} {time},{self.rng.randrange(1000):03d}"
        if self.style == 3:
            return f"{self.date()}T{time}.{self.rng.randrange(1000):03d}Z"
        if self.style == 4:
            return f"{MONTHS[self.month - 1]} {self.day} {time}"
        return time


Line = Callable[[str, str], tuple[str, str]]
"""(level, text) to (the whole line, what an answer repeats of it)."""


def layout(words: Lexicon, clock: Clock) -> Line:
    """One of the ways in which programs write a log line."""
    rng = words.rng
    component = [words.identifier() for _ in range(3)]
    host, program = words.word(), f"{words.word()}[{rng.randrange(9999)}]"
    one = lambda: rng.choice(component)  # noqa: E731  # a name for each line
    cased = rng.random() < 0.25

    def name(level: str) -> str:
        return level.lower() if cased else level

    def tail(prefix: str, text: str) -> tuple[str, str]:
        return prefix + text, text

    def named(prefix: str, text: str, join: str) -> tuple[str, str]:
        return tail(prefix, f"{one()}{join}{text}")

    def logfmt(level: str, text: str) -> tuple[str, str]:
        text = text.replace('"', "'")
        more = f" {words.word()}={words.number()}" if rng.random() < 0.5 else ""
        return f'time={clock.stamp()} level={level.lower()} msg="{text}"{more}', text

    def json_line(level: str, text: str) -> tuple[str, str]:
        return f'{{"time": "{clock.stamp()}", "level": "{name(level)}", "msg": "{text}"}}', text

    def klog(level: str, text: str) -> tuple[str, str]:
        where = f"{words.word()}.go:{rng.randrange(900)}"
        time = f"{clock.month:02d}{clock.day:02d} {clock.hms()}.{rng.randrange(999999):06d}"
        letter = "E" if level in BAD else "W" if level.startswith("W") else "I"
        return tail(f"{letter}{time} {where}] ", text)

    def android(level: str, text: str) -> tuple[str, str]:
        letter = "E" if level in BAD else level[0]
        head = f"{clock.month:02d}-{clock.day:02d} {clock.hms()}.{rng.randrange(1000):03d}"
        return named(f"{head} {rng.randrange(9999)} {letter} ", text, ": ")

    styles: list[Line] = [
        lambda level, text: tail(f"{clock.stamp()} {name(level)} ", text),
        lambda level, text: tail(f"{clock.stamp()} {name(level)} ", text),
        lambda level, text: tail(f"{clock.stamp()} {name(level)}: ", text),
        lambda level, text: tail(f"{clock.stamp()} [{name(level)}] ", text),
        lambda level, text: tail(f"{clock.stamp()} [{name(level)}] ", text),
        lambda level, text: tail(f"[{clock.stamp()}] {name(level)}: ", text),
        lambda level, text: tail(f"[{clock.stamp()}] {name(level)} ", text),
        lambda level, text: tail(f"[{clock.stamp()}] [{name(level)}] ", text),
        lambda level, text: tail(f"{name(level)} ", text),
        lambda level, text: tail(f"{name(level)}: ", text),
        lambda level, text: tail(f"[{name(level)}] ", text),
        lambda level, text: tail(f"{clock.stamp()} | {name(level)} | ", text),
        lambda level, text: named(f"{clock.stamp()} {name(level)} ", text, ": "),
        lambda level, text: named(f"{clock.stamp()} {name(level)} [", text, "] "),
        lambda level, text: named(f"{clock.stamp()} [main] {name(level)} ", text, " - "),
        lambda level, text: tail(f"{clock.stamp()} - {one()} - {name(level)} - ", text),
        lambda level, text: named(f"{name(level)}:", text, ":"),
        lambda level, text: tail(
            f"{MONTHS[clock.month - 1]} {clock.day} {clock.hms()} {host} {program}: "
            f"{level.lower()}: ",
            text,
        ),
        lambda level, text: tail(
            f"{clock.date('/')} {clock.hms()} [{level.lower()}] {rng.randrange(999)}#0: ", text
        ),
        logfmt,
        json_line,
        klog,
        android,
    ]
    return rng.choice(styles)


def traceback(words: Lexicon) -> tuple[list[str], str]:
    """A Python traceback; its last line is the error."""
    last = f"{words.rng.choice(EXCEPTIONS.split())}: {failure(words)}"
    rows = ["Traceback (most recent call last):"]
    for _ in range(words.rng.randint(1, 2)):
        where = f"{words.absolute_path()}.py"
        rows.append(f'  File "{where}", line {words.rng.randrange(900)}, in {words.word()}')
        rows.append(f"    {words.identifier()}({words.identifier()})")
    return [*rows, last], last


def java_trace(words: Lexicon) -> tuple[list[str], str]:
    """A Java exception with its frames."""
    package = f"{words.word()}.{words.word()}"
    kind = words.rng.choice(("IllegalState", "IO", "NullPointer", "Timeout", "SQL"))
    last = f"{package}.{kind}Exception: {failure(words)}"
    frames = [
        f"\tat {package}.{words.word().capitalize()}.{words.word()}({words.word()}.java:{n})"
        for n in words.rng.sample(range(1, 900), k=words.rng.randint(1, 2))
    ]
    return [f'Exception in thread "main" {last}', *frames], last


def compiler(words: Lexicon) -> tuple[list[str], str]:
    """What gcc, clang or rustc print."""
    rng = words.rng
    source = f"{words.word()}/{words.word()}.{rng.choice(('c', 'cpp', 'rs', 'go', 'ts'))}"
    text = failure(words)
    where = f"{source}:{rng.randrange(900)}:{rng.randrange(80)}"
    head = rng.choice((f"{where}: error: ", f"{where}: fatal error: ", "error: ", "error[E0308]: "))
    rows = [f"{head}{text}"]
    if rng.random() < 0.5:
        rows.append(f"    {words.identifier()}({words.identifier()});")
    return rows, text


def plain_end(words: Lexicon) -> tuple[list[str], str]:
    """A line that starts with what it is: `fatal: …`, `panic: …`, `Error: …`."""
    text = failure(words)
    head = words.rng.choice(("fatal: ", "panic: ", "Error: ", "error: ", "ERROR: ", "FATAL: "))
    return [f"{head}{text}"], text


def make_log(words: Lexicon, size: int, n_errors: int = 1) -> Log:
    """A log of about `size` lines with so many errors, at random places.

    Most programs say few things again and again: in two logs of three the words, and in some the
    whole texts, come from a small stock, so that the error shares its beginnings with other lines.
    """
    if words.pool or words.rng.random() < 0.33:
        return _write_log(words, size, n_errors)
    with words.few(words.rng.randint(4, 30)):
        return _write_log(words, size, n_errors)


def _row_of(rows: list[str], text: str) -> int:
    return next(number for number, row in enumerate(rows) if row.endswith(text))


def _write_log(words: Lexicon, size: int, n_errors: int) -> Log:
    rng = words.rng
    log = Log()
    line = layout(words, Clock(rng))
    places = sorted(rng.sample(range(max(size, n_errors)), n_errors))
    block = rng.choice((traceback, java_trace, compiler, plain_end))
    in_blocks = rng.random() < 0.25
    bad = rng.choice(BAD)
    stock = [event(words) for _ in range(rng.randint(2, 8))] if rng.random() < 0.3 else []
    while len(log.lines) < size or places:
        if places and len(log.lines) >= places[0]:
            places.pop(0)
            if in_blocks:
                rows, text = block(words)
                log.lines += rows
                log.places.append(len(log.lines) - len(rows) + 1 + _row_of(rows, text))
            else:
                row, text = line(bad, failure(words, stock))
                log.lines.append(row)
                log.places.append(len(log.lines))
                if rng.random() < 0.06:
                    log.lines += traceback(words)[0]
            log.errors.append(text)
        else:
            again = stock and rng.random() < 0.7
            text = rng.choice(stock) if again else event(words)
            log.lines.append(line(rng.choice(CLEAR), text)[0])
    return log
