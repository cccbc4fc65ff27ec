"""Layouts of log lines: time, level, component, text."""

from __future__ import annotations

import random
from collections.abc import Callable

from .words import Lexicon

CLEAR = ("INFO", "INFO", "INFO", "INFO", "DEBUG", "DEBUG", "WARN", "WARNING", "NOTICE", "TRACE")
BAD = ("ERROR", "ERROR", "ERROR", "ERROR", "FATAL", "CRITICAL", "SEVERE")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Clock:
    """A clock whose times go forward, in one format."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seconds = rng.randrange(80_000)
        self.year, self.month, self.day = rng.randint(2019, 2027), rng.randint(1, 12), 1
        self.day = rng.randint(1, 28)
        self.style = rng.randrange(6)

    def hms(self) -> str:
        """Return `10:11:12`, a little later than the last."""
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
    """Choose a layout of log lines."""
    rng = words.rng
    component = [words.identifier() for _ in range(3)]
    host, program = words.word(), f"{words.word()}[{rng.randrange(9999)}]"
    one = lambda: rng.choice(component)  # noqa: E731  # a name for each line
    cased = rng.random() < 0.25

    def name(level: str) -> str:
        return level.lower() if cased else level

    def tail(prefix: str, text: str) -> tuple[str, str]:
        return prefix + text, text

    def named(prefix: str, text: str) -> tuple[str, str]:
        return tail(prefix, f"{one()}: {text}")

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

    def nginx(level: str, text: str) -> tuple[str, str]:
        worker = f"{clock.year % 100}#{rng.choice((0, clock.day))}: "
        if rng.random() < 0.6:
            worker += f"*{rng.randrange(5000)} "
        more = f", client: {words.host()}" if rng.random() < 0.4 else ""
        head = f"{clock.date('/')} {clock.hms()} [{level.lower()}] {worker}"
        return tail(head, f"{text}{more}")

    styles: list[Line] = [
        lambda level, text: tail(f"{clock.stamp()} {name(level)} ", text),
        lambda level, text: tail(f"{clock.stamp()} {name(level)} ", text),
        lambda level, text: tail(f"{clock.stamp()} {name(level)}: ", text),
        lambda level, text: tail(f"{clock.stamp()} [{name(level)}] ", text),
        lambda level, text: tail(f"{clock.stamp()} [{name(level)}] ", text),
        lambda level, text: tail(f"[{clock.stamp()}] {name(level)}: ", text),
        lambda level, text: tail(f"[{clock.stamp()}] {name(level)} ", text),
        lambda level, text: tail(f"[{clock.stamp()}] [{name(level)}] ", text),
        lambda level, text: tail(f"{clock.stamp()} {name(level):<5} ", text),
        lambda level, text: tail(f"{clock.stamp()} {name(level):<8} ", text),
        lambda level, text: tail(f"{name(level)} ", text),
        lambda level, text: tail(f"{name(level)}: ", text),
        lambda level, text: tail(f"[{name(level)}] ", text),
        lambda level, text: tail(f"{clock.stamp()} | {name(level)} | ", text),
        lambda level, text: named(f"{clock.stamp()} {name(level)} ", text),
        lambda level, text: named(f"{clock.stamp()} [{name(level)}] ", text),
        lambda level, text: named(f"[{clock.stamp()}] {name(level):<5} ", text),
        lambda level, text: tail(f"{clock.stamp()} {name(level)} [{one()}] ", text),
        lambda level, text: tail(f"{clock.stamp()} [main] {name(level)} {one()} - ", text),
        lambda level, text: tail(f"{clock.stamp()} - {one()} - {name(level)} - ", text),
        lambda level, text: tail(f"{name(level)}:{one()}:", text),
        lambda level, text: tail(
            f"{MONTHS[clock.month - 1]} {clock.day} {clock.hms()} {host} {program}: "
            f"{level.lower()}: ",
            text,
        ),
        nginx,
        logfmt,
        json_line,
        klog,
    ]
    return rng.choice(styles)
