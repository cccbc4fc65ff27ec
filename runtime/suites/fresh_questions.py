"""Questions over folders that a program makes, with answers that it knows: fresh for any seed.

A folder has settings, logs, a table and notes. Each question has texts that may be said: first
what is right, then what is wrong though it stands in the folder, such as the value of another key,
or that it is not there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..conversation.toolcalls import ToolCall
from .suite_files import Turn
from .verdict import accept

ABSENT = "It is not there."
"""What the harness asks a model to say."""

_SERVICES: tuple[str, ...] = (
    "billing",
    "search",
    "mail",
    "catalog",
    "reports",
    "gateway",
    "sessions",
    "uploads",
)
_KEYS = {
    "port": "On which port does {} listen?",
    "timeout": "After how many seconds does {} give up?",
    "workers": "How many workers does the {} service have?",
    "retries": "How many times does {} try again?",
    "queue_size": "How long may the queue of {} get?",
    "cache_mb": "How much may the cache of {} take?",
}
_ERRORS = (
    "disk quota exceeded on /var/data", "certificate expired for the upstream host",
    "connection refused by the primary database", "out of file descriptors",
    "checksum mismatch in segment 41", "lock file is held by another process",
    "message rejected: body too large", "clock skew of 340 seconds",
)  # fmt: skip
_CHATTER = ("request served", "cache refreshed", "heartbeat sent", "batch written", "token renewed")
_STATES = ("paid", "open", "refunded", "disputed")
_TOPICS = ("handover", "oncall", "releases", "vendors")
_NAMES = ("Marlow", "Okafor", "Lindqvist", "Tanaka", "Delgado", "Weber", "Novak", "Rossi")
_VERBS = ("keeps", "reviews", "restarts", "approves", "orders", "audits")
_THINGS = ("the spare keys", "the rollback plan", "the nightly batch", "the license renewals",
           "the backup tapes", "the pager rota")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """One question over a `Fresh` folder.

    Attributes:
        kind: what it asks for.
        turn: its text, and what makes an answer right.
        said: what may be said or called, the right one first.
        after: files that a task has to change, as they are to be then; empty for a question.
    """

    kind: str
    turn: Turn
    said: tuple[str | ToolCall, ...]
    after: Mapping[str, str] = field(default_factory=dict)

    def right(self, answer: str, root: Path) -> bool:
        """Whether an answer is right; of a task, whether the files are as they should be."""
        if not self.after:
            return accept(self.turn, answer)
        return all((root / path).read_text() == text for path, text in self.after.items())


class Fresh:
    """A folder of a seed.

    Attributes:
        files: texts by path.
        questions: one of each kind, tasks last.
    """

    def __init__(self, seed: int) -> None:
        self._draw = draw = random.Random(seed)
        self._names: list[str] = draw.sample(_SERVICES, 4)
        values = iter(draw.sample(range(2, 990), 4 * len(_KEYS)))  # none twice
        keys: list[str] = [*_KEYS]
        self._settings = {name: {key: next(values) for key in keys} for name in self._names}
        self._errors = dict(zip(self._names, draw.sample(_ERRORS, 4), strict=True))
        states = draw.choices(_STATES, (5, 3, 2, 1), k=draw.randrange(60, 90))
        self._rows = [(draw.randrange(5, 900), one) for one in [*_STATES, *states]]
        days = draw.sample(range(1, 99), 24 * len(_TOPICS))  # none twice
        self._notes = {one: self._lines(days[n::4]) for n, one in enumerate(_TOPICS)}
        self.files = {
            **{f"services/{name}.ini": self._ini(name) for name in self._names},
            **{f"logs/{name}.log": self._log(name) for name in self._names},
            "data/orders.csv": self._orders(),
            **{f"notes/{topic}.md": "\n".join(self._notes[topic]) + "\n" for topic in _TOPICS},
        }
        self.questions = [
            self._setting(), self._error(), *self._counts(), self._line(), self._who(),
            self._which(), self._no_setting(), self._no_file(), self._change(),
        ]  # fmt: skip

    def write(self, root: Path) -> None:
        """Lay the files out below `root`."""
        for path, text in self.files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)

    # ------------------------------------------------------------------------------ files

    def _ini(self, name: str) -> str:
        pairs = "".join(f"{key} = {value}\n" for key, value in self._settings[name].items())
        return f"# settings of {name}\n[{name}]\n{pairs}"

    def _log(self, name: str) -> str:
        draw, out = self._draw, list[str]()
        at = draw.randrange(20, 50)
        for n in range(60):
            what = f"ERROR {self._errors[name]}" if n == at else f"INFO {draw.choice(_CHATTER)}"
            out.append(f"2026-03-{n // 3 + 1:02} 0{n % 9}:{draw.randrange(10, 60)} {what}")
        return "\n".join(out) + "\n"

    def _orders(self) -> str:
        rows = [f"{n},{amount},{s}" for n, (amount, s) in enumerate(self._rows, 1001)]
        return "\n".join(["order,amount,state", *rows]) + "\n"

    def _lines(self, days: Sequence[int]) -> list[str]:
        draw = self._draw
        return [
            f"{draw.choice(_NAMES[:-1])} {draw.choice(_VERBS)} {draw.choice(_THINGS)} on day {n}."
            for n in days
        ]

    # -------------------------------------------------------------------------- questions

    def _pick(self) -> tuple[str, str, list[str]]:
        """A service, a key, and the other services."""
        name = self._draw.choice(self._names)
        return name, self._draw.choice([*_KEYS]), [one for one in self._names if one != name]

    def _setting(self) -> Question:
        name, key, others = self._pick()
        value, wrong = self._settings[name][key], [self._settings[one][key] for one in others]
        said = [f"{key} is set to {one} for {name}." for one in (value, *wrong)]
        turn = Turn(_KEYS[key].format(name), has=((str(value),),))
        return Question("setting", turn, (*said, ABSENT))

    def _error(self) -> Question:
        name, _, others = self._pick()
        said = [f"The error is: {self._errors[one]}." for one in (name, *others)]
        turn = Turn(f"What went wrong with {name}?", has=((self._errors[name],),))
        return Question("error", turn, (*said, f"The error is: {_CHATTER[0]}.", ABSENT))

    def _counts(self) -> Iterator[Question]:
        state, rows = self._draw.choice(_STATES), self._rows
        for kind, ask, of in (
            ("count", f"How many orders in data/orders.csv are {state}?", len),
            ("sum", f"What do the {state} orders add up to?", sum),
        ):
            totals = [of([n for n, one in rows if one == each]) for each in _STATES]
            right = totals[_STATES.index(state)]
            wrong = {right - 1, right + 1, of([n for n, _ in rows]), *totals} - {right}
            said = [f"It is {one}." for one in (right, *sorted(wrong))]
            yield Question(kind, Turn(ask, has=((str(right), f"{right:,}"),)), tuple(said))

    def _line(self) -> Question:
        topic, at = self._draw.choice(_TOPICS), self._draw.randrange(2, 22)
        lines = self._notes[topic]
        turn = Turn(f"What does line {at + 1} of notes/{topic}.md say?", has=((lines[at][:-1],),))
        return Question("line", turn, (lines[at], lines[at - 1], lines[at + 1], lines[0], ABSENT))

    def _who(self) -> Question:
        name, does = self._draw.choice(self._notes[self._draw.choice(_TOPICS)]).split(" ", 1)
        others = [one for one in _NAMES if one != name]
        turn = Turn(f"Who {does[:-1]}?", has=((name,),))
        return Question("who", turn, (f"{name} {does}", *(f"{one} {does}" for one in others[:3])))

    def _which(self) -> Question:
        topic, name = self._draw.choice(_TOPICS), _NAMES[-1]
        line = f"{name} {self._draw.choice(_VERBS)} the visitors' badges."
        self._notes[topic].insert(self._draw.randrange(23, 25), line)  # behind those asked for
        self.files[f"notes/{topic}.md"] = "\n".join(self._notes[topic]) + "\n"
        paths = [f"notes/{one}.md" for one in (topic, *(t for t in _TOPICS if t != topic))]
        turn = Turn(f"Which file mentions {name}?", has=((f"{topic}.md",),))
        return Question("which file", turn, (*(f"{one} mentions {name}." for one in paths), ABSENT))

    def _no_setting(self) -> Question:
        name, _, _ = self._pick()
        wrong = [f"The password of {name} is {one}." for one in self._settings[name].values()]
        turn = Turn(f"What is the password of {name}?", none=True)
        return Question("not there", turn, (ABSENT, *wrong[:4]))

    def _no_file(self) -> Question:
        name = next(one for one in _SERVICES if one not in self._names)
        wrong = [f"The error is: {one}." for one in self._errors.values()]
        turn = Turn(f"What is the error in logs/{name}.log?", absent=True)
        return Question("no file", turn, (ABSENT, *wrong))

    def _change(self) -> Question:
        name, key, others = self._pick()
        old, new = self._settings[name][key], self._draw.randrange(1000, 2000)
        path, line, wanted = f"services/{name}.ini", f"{key} = {old}", f"{key} = {new}"
        elsewhere = f"services/{others[0]}.ini"
        theirs = f"{key} = {self._settings[others[0]][key]}"
        beside = next((k, v) for k, v in self._settings[name].items() if k != key)
        calls = [
            (path, line, wanted), (elsewhere, theirs, wanted), (elsewhere, line, wanted),
            (path, f"{beside[0]} = {beside[1]}", f"{beside[0]} = {new}"), (path, wanted, line),
        ]  # fmt: skip
        said = [ToolCall("edit_file", {"path": p, "old": o, "new": n}) for p, o, n in calls]
        after = {path: self.files[path].replace(f"\n{line}\n", f"\n{wanted}\n")}
        turn = Turn(f"Set the {key} of the {name} service to {new}.", says=(("",),))
        return Question("change", turn, tuple(said), after)
