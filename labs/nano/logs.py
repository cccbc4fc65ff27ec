"""Log files of many shapes, with their error messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from .log_lines import BAD, CLEAR, Clock, layout
from .log_texts import event, failure
from .words import Lexicon

EXCEPTIONS = (
    "ValueError KeyError TypeError RuntimeError IndexError OSError ConnectionError TimeoutError "
    "FileNotFoundError PermissionError AttributeError ZeroDivisionError ImportError MemoryError"
)


@dataclass(slots=True)
class Log:
    """A log file's lines and, of its errors in order, messages, whole lines and line numbers."""

    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    weak: bool = False
    """Whether only the second search, for `marks.SIGNS`, finds its error."""
    hidden: bool = False
    """Whether no search finds the message: it is some lines after a hit."""


def traceback(words: Lexicon) -> tuple[list[str], str]:
    """Return a Python traceback; its last line is the error."""
    last = f"{words.rng.choice(EXCEPTIONS.split())}: {failure(words)}"
    rows = ["Traceback (most recent call last):"]
    for _ in range(words.rng.randint(1, 2)):
        where = f"{words.absolute_path()}.py"
        rows.append(f'  File "{where}", line {words.rng.randrange(900)}, in {words.word()}')
        rows.append(f"    {words.identifier()}({words.identifier()})")
    return [*rows, last], last


def java_trace(words: Lexicon) -> tuple[list[str], str]:
    """Return a Java exception with its frames."""
    package = f"{words.word()}.{words.word()}"
    kind = words.rng.choice(("IllegalState", "IO", "NullPointer", "Timeout", "SQL"))
    last = f"{package}.{kind}Exception: {failure(words)}"
    frames = [
        f"\tat {package}.{words.word().capitalize()}.{words.word()}({words.word()}.java:{n})"
        for n in words.rng.sample(range(1, 900), k=words.rng.randint(1, 2))
    ]
    return [f'Exception in thread "main" {last}', *frames], last


def compiler(words: Lexicon) -> tuple[list[str], str]:
    """Return output of gcc, clang or rustc."""
    rng = words.rng
    source = f"{words.word()}/{words.word()}.{rng.choice(('c', 'cpp', 'rs', 'go', 'ts'))}"
    text = failure(words)
    where = f"{source}:{rng.randrange(900)}:{rng.randrange(80)}"
    head = rng.choice((f"{where}: error: ", f"{where}: fatal error: ", "error: ", "error[E0308]: "))
    rows = [f"{head}{text}"]
    if head.startswith(source) and rng.random() < 0.4:
        rows.insert(0, f"{source}: In function '{words.identifier()}':")
    if rng.random() < 0.5:
        rows.append(f"    {words.identifier()}({words.identifier()});")
    if rng.random() < 0.25:
        rows.append(f"make: *** [Makefile:{rng.randrange(99)}: {words.word()}.o] Error 1")
    return rows, text


def plain_end(words: Lexicon) -> tuple[list[str], str]:
    """Return a line that starts with its kind: `fatal: …`, `panic: …`, `Error: …`."""
    text = failure(words)
    head = words.rng.choice(("fatal: ", "panic: ", "Error: ", "error: ", "ERROR: ", "FATAL: "))
    return [f"{head}{text}"], text


def make_log(words: Lexicon, size: int, n_errors: int = 1) -> Log:
    """Generate a log of about `size` lines with so many errors, at random lines.

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
    words.talks_of_errors = rng.random() < 0.3
    line = layout(words, Clock(rng))
    places = sorted(rng.sample(range(max(size, n_errors)), n_errors))
    block = rng.choice((traceback, java_trace, compiler, plain_end))
    in_blocks = rng.random() < 0.25
    bad = rng.choice(BAD)
    stock = [event(words) for _ in range(rng.randint(2, 8))] if rng.random() < 0.3 else []
    retried = n_errors > 0 and not in_blocks and rng.random() < 0.2
    clear: list[str] = []
    while len(log.lines) < size or places:
        if places and len(log.lines) >= places[0]:
            places.pop(0)
            if retried:  # warnings of what is about to fail are no errors yet
                log.lines += [line("WARN", failure(words))[0] for _ in range(rng.randint(1, 2))]
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
            log.rows.append(log.lines[log.places[-1] - 1])
        elif len(clear) > 30:  # a long log's lines are not each its own
            gap = (places[0] if places else size) - len(log.lines)
            log.lines += rng.choices(clear, k=max(1, gap))
        else:
            again = stock and rng.random() < 0.7
            text = rng.choice(stock) if again else event(words)
            clear.append(line(rng.choice(CLEAR), text)[0])
            log.lines.append(clear[-1])
    return log
