"""Generates folders with questions and known answers from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from ..conversation.formats.toolcalls import ToolCall
from .suite_files import Folder, Turn
from .verdict import accept

ABSENT = "It is not there."
"""The answer that the harness prompts a model to give for absent facts."""

_SERVICES = ["billing", "search", "mail", "catalog", "reports", "gateway", "sessions", "uploads"]
_KEYS = {
    "port": "On which port does {} listen?",
    "timeout": "After how many seconds does {} give up?",
    "workers": "How many workers does the {} service have?",
    "retries": "How many times does {} try again?",
    "queue_size": "How long may the queue of {} get?",
}
_ERRORS = (
    "disk quota exceeded on /var/data", "certificate expired for the upstream host",
    "connection refused by the primary database", "out of file descriptors",
    "checksum mismatch in segment 41", "lock file is held by another process",
)  # fmt: skip
_CHATTER = ("request served", "cache refreshed", "heartbeat sent", "batch written")
_STATES = ("paid", "open", "refunded", "disputed")
_TOPICS = ["handover", "oncall", "releases", "vendors"]
_NAMES = ("Marlow", "Okafor", "Lindqvist", "Tanaka", "Delgado", "Weber", "Novak", "Rossi")
_DUTIES = ("keeps the spare keys", "reviews the rollback plan", "restarts the nightly batch",
           "approves the renewals", "orders the backup tapes", "audits the pager rota")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """One question over a generated folder.

    Attributes:
        turn: its text, and the rules of a right answer.
        texts: possible answers or calls: the right one first, then plausible wrong ones, such as
            the value of another key.
        after: of a task: the file that it changes, and its text afterwards.
    """

    kind: str
    turn: Turn
    texts: tuple[str | ToolCall, ...]
    after: tuple[str, str] | None = None

    def right(self, answer: str, root: Path) -> bool:
        """Return whether an answer is right, or for a task, whether the file is as required."""
        if self.after is None:
            return accept(self.turn, answer)
        return (root / self.after[0]).read_text() == self.after[1]


def fresh(seed: int) -> tuple[Folder, list[Question]]:
    """Generate a folder, and a question of each kind over it, from a seed."""
    draw = random.Random(seed)
    names, topics = draw.sample(_SERVICES, 4), draw.sample(_TOPICS, 4)
    unlike = iter(draw.sample(range(20, 990), 4 * len(_KEYS)))  # no value occurs twice
    has = {name: {key: next(unlike) for key in _KEYS} for name in names}
    errors = dict(zip(names, draw.sample(_ERRORS, 4), strict=True))
    states = [*_STATES, *draw.choices(_STATES, (5, 3, 2, 1), k=70)]
    days = draw.sample(range(1, 99), 96)
    notes = [
        [f"{draw.choice(_NAMES)} {draw.choice(_DUTIES)} on day {n}." for n in days[at::4]]
        for at in range(4)
    ]
    files = {f"notes/{one}.md": "\n".join(notes[at]) + "\n" for at, one in enumerate(topics)}
    for name in names:
        log = [f"2026-03-{n + 1:02} INFO {draw.choice(_CHATTER)}" for n in range(31)]
        log[draw.randrange(9, 24)] = f"2026-03-31 ERROR {errors[name]}"
        pairs = "".join(f"{key} = {value}\n" for key, value in has[name].items())
        files |= {f"services/{name}.ini": f"[{name}]\n{pairs}", f"logs/{name}.log": "\n".join(log)}
    rows = "".join(f"{n},{draw.randrange(5, 900)},{s}\n" for n, s in enumerate(states, 1001))
    files["data/orders.csv"] = f"order,amount,state\n{rows}"

    name, key, at = names[0], draw.choice([*_KEYS]), draw.randrange(3, 20)
    gone = next(one for one in _SERVICES if one not in names)
    line, state, new = notes[0][at], draw.choice(_STATES), draw.randrange(1000, 2000)
    counts = [states.count(state), *{states.count(one) for one in _STATES}, len(states)]
    path, old = f"services/{name}.ini", f"{key} = {has[name][key]}"
    other = next(f"{one} = {value}" for one, value in has[name].items() if one != key)
    edits = [(path, old), (f"services/{names[1]}.ini", old), (path, other), (path, f"{key} = 0")]
    calls = [
        ToolCall("edit_file", {"path": p, "old": o, "new": f"{key} = {new}"}) for p, o in edits
    ]
    values = [f"{key} is set to {has[one][key]} for {one}." for one in names]
    failures = [f"The error is: {errors[one]}." for one in names]
    lines, where = [notes[0][n] for n in (at, at - 1, at + 1)], [f"notes/{t}.md." for t in topics]
    others = [f"The password of {name} is {value}." for value in has[name].values()]
    return Folder(f"fresh-{seed}", files), [
        Question("setting", _turn(_KEYS[key].format(name), has[name][key]), (*values, ABSENT)),
        Question("error", _turn(f"What went wrong with {name}?", errors[name]),
                 (*failures, "No errors.", ABSENT)),
        Question("count", _turn(f"How many orders in data/orders.csv are {state}?", counts[0]),
                 tuple(f"It is {one}." for one in dict.fromkeys([*counts, counts[0] + 1]))),
        Question("line", _turn(f"What does line {at + 1} of notes/{topics[0]}.md say?", line[:-1]),
                 (*lines, ABSENT)),
        Question("which file", _turn(f"Which file tells of day {days[0]}?", f"{topics[0]}.md"),
                 (*where, ABSENT)),
        Question("not there", Turn(f"What is the password of {name}?", none=True),
                 (ABSENT, *others)),
        Question("no file", Turn(f"What is the error in logs/{gone}.log?", absent=True),
                 (ABSENT, *failures)),
        Question("change", Turn(f"Set {key} of the {name} service to {new}.", says=(("",),)),
                 tuple(calls), (path, files[path].replace(f"{old}\n", f"{key} = {new}\n"))),
    ]  # fmt: skip


def _turn(ask: str, fact: object) -> Turn:
    return Turn(ask, has=((str(fact),),))
