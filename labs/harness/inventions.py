"""`python -m labs.harness.inventions [--trees FOLDER] [--misses]`: planted inventions.

Whether `runtime.evidence.facts` marks what an answer invents, and leaves alone what is true. Asked
are the questions of the frozen set (own trees; with a folder of downloads all), and a question for
every key of the trees' settings files (`SETTINGS`). What was read is what the runtime gathers, and
the gold lines where these are not among it. Of each question there is an answer with the true
value, and answers with an invention in its place: a value that stands nowhere, and a true one of
another line of what was read, mostly of another key or file.

A fact that is true of two lines at once cannot be told apart, so no invention is a value of the
gold lines, or of the question.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from triplepoint.runtime.evidence import Gatherer
from triplepoint.runtime.evidence.facts import Fact, facts
from triplepoint.runtime.evidence.reading import Text
from triplepoint.runtime.evidence.sources import Read, check
from triplepoint.runtime.suites.statistics import wilson
from triplepoint.tools import Workspace

from . import trees
from .gold import Line
from .questions import Question, frozen

Sort = Literal["true", "nowhere", "other"]
FORMS = (
    "{}",
    "It is {}.",
    "The answer is `{}`.",
    'The line says "{}".',
    "According to {path}, it is {}.",
    "{} ({path}, line {number})",
)
SETTINGS = re.compile(r"\s*([A-Za-z][\w.-]*)\s*[=:]\s*(\S.*?)[\s,;]*")
KEYS = (
    "What is {key} in {path}?",
    "which value does {key} have in {above}",
    "What's the {key} of {above}?",
    "Tell me {key} from {path}, under {above}.",
)


@dataclass(frozen=True)
class Asked:
    """A question, the values that answer it, and the lines that have them."""

    text: str
    values: tuple[str, ...]
    lines: tuple[Line, ...]
    earlier: tuple[str, ...] = ()
    set: str = "frozen"
    counted: str = ""


@dataclass
class Case:
    """An answer, and whether the checker marked its facts: in all, and those that were marked."""

    sort: Sort
    set: str
    question: str
    answer: str
    facts: int = 0
    marked: list[str] = field(default_factory=list)


def questions_of(questions: Sequence[Question]) -> Iterator[Asked]:
    """Yield what the frozen set asks about a tree."""
    for one in questions:
        if one.unanswerable or one.kind in ("plain", "edit"):
            continue
        for place, turn in enumerate(one.turns):
            values = tuple(re.sub("^[#@]", "", group[0]) for group in turn.need)
            counted = "" if turn.note.startswith("files by") else turn.note
            earlier = tuple(t.ask for t in one.turns[:place])
            yield Asked(turn.ask, values, turn.lines, earlier, "frozen", counted)


def keys_of(texts: dict[str, list[str]], pick: random.Random) -> Iterator[Asked]:
    """Yield a question for each key of settings, by its name, file and section."""
    for path, lines in texts.items():
        if not path.endswith((".ini", ".conf", ".yaml", ".yml", ".toml", ".cf", ".service")):
            continue
        parents = Text("\n".join(lines)).parents
        for at, text in enumerate(lines):
            found = SETTINGS.fullmatch(text)
            if found is None or not facts(f"`{found[2]}`"):
                continue
            above = lines[parents[at]].strip(" []:{") if parents[at] >= 0 else path
            above = above if above and len(above) < 40 else path
            ask = pick.choice(KEYS).format(key=found[1].replace("_", " "), path=path, above=above)
            if path not in ask and above == path:
                ask += f" ({path})"
            yield Asked(ask, (found[2].strip("\"'"),), (Line(path, at + 1, text),), set="keys")


def reads_of(asked: Asked, gatherer: Gatherer, texts: dict[str, list[str]]) -> list[Read]:
    """Return what was read: gathered evidence, the gold lines, and counts of tools."""
    found = gatherer.gather(
        asked.text, asked.earlier, budget=1500, count=lambda text: len(text) // 3
    )
    reads = [
        Read(call.tool, str(call.arguments.get("path", "")), call.result) for call in found.calls
    ]
    for line in asked.lines:
        mark = f"{line.number}\t{line.text[:40]}", f"{line.path}:{line.number}:"
        if line.number and not any(one in read.text for one in mark for read in reads):
            shown = texts[line.path][max(line.number - 2, 0) : line.number + 1]
            numbered = enumerate(shown, max(line.number - 1, 1))
            text = "\n".join(f"{number}\t{one}" for number, one in numbered)
            reads.append(Read("read_file", line.path, text))
    if asked.counted:
        reads.append(Read("count", "", asked.counted, counted=True))
    return reads


def cases(asked: Asked, reads: Sequence[Read], texts: dict[str, list[str]]) -> Iterator[Case]:
    """Yield answers with the truth and with inventions, checked."""
    pick = random.Random(hashlib.sha256(asked.text.encode()).digest())
    gold = asked.lines[0] if asked.lines else Line("", 0, "")
    whole = [texts[line.path][line.number - 1] for line in asked.lines if line.number]
    form = pick.choice(FORMS if gold.number else FORMS[:4])

    def case(sort: Sort, values: Sequence[str]) -> Case:
        told = ", ".join(form.format(one, path=gold.path, number=gold.number) for one in values)
        found = check(told, asked.text, reads, asked.earlier)
        planted = Case(sort, asked.set, asked.text, told, len(facts(told)))
        planted.marked = list(found.unsupported)
        return planted

    if not any(facts(form.format(one, path="", number="")) for one in asked.values):
        return
    yield case("true", asked.values)
    own = "\n".join([asked.text, *asked.earlier, *asked.values, *whole, asked.counted]).casefold()
    every = "\n".join(f"{read.path}\n{read.text}" for read in reads).casefold()
    kinds = {one.kind for value in asked.values for one in facts(value) or [Fact("", "quote")]}
    lines = [
        re.sub(r"^(\d+\t|.+?:\d+:)", "", one)
        for read in reads if not read.counted
        for one in read.text.split("\n") if not one.startswith("[")
    ]  # fmt: skip
    found = dict.fromkeys(one for line in lines for one in facts(_values(line)))
    others = [one.text for one in found if one.kind in kinds]
    others = [one for one in others if one.strip("\"'").casefold() not in own]
    if others:
        yield case("other", [pick.choice(others)])
    if asked.values:
        made = _made(asked.values[0], pick)
        if made.casefold() not in every and facts(form.format(made, path="", number="")):
            yield case("nowhere", [made])


def _values(line: str) -> str:
    """Return a line without its key, so that only the value remains."""
    found = SETTINGS.fullmatch(line)
    return f"`{found[2].replace('`', '')}`" if found and " " in found[2] else line


def _made(value: str, pick: random.Random) -> str:
    """Invent a similar value: change its digits, or reverse its words if it has none."""
    made = re.sub(r"\d", lambda _: str(pick.randint(1, 9)), value)
    if made == value:
        made = re.sub(r"[^\W\d_]+", lambda m: m[0][::-1] + "x" if len(m[0]) > 2 else m[0], value)
    return made


def all_cases(room: Path | None) -> list[Case]:
    """Return the cases of all available trees."""
    made: list[Case] = []
    questions = frozen()
    with tempfile.TemporaryDirectory(prefix="triplepoint-inventions-") as temporary:
        for name in trees.NAMES:
            if trees.is_package(name) and room is None:
                continue
            folder = trees.build(name, room or Path(temporary))
            files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
            texts = {}
            for path, file in sorted(files.items()):
                try:
                    texts[path] = file.read_bytes().decode().splitlines()
                except UnicodeDecodeError:
                    continue
            own = [one for one in questions if one.tree == name]
            asked = [
                one for one in questions_of(own) if all(line.path in texts for line in one.lines)
            ]
            keys = list(keys_of(texts, random.Random(name)))
            asked += random.Random(name).sample(keys, min(len(keys), 60))
            with Workspace(folder) as workspace:
                gatherer = Gatherer(workspace, index=False, background=False)
                for one in asked:
                    made += cases(one, reads_of(one, gatherer, texts), texts)
                gatherer.close()
    return made


def report(cases: Sequence[Case]) -> list[str]:
    """Render the shares of marked answers by sort and set."""
    lines = [f"{'':<18}     n  marked   from     to"]
    for which in ("frozen", "keys"):
        for sort in ("true", "nowhere", "other"):
            part = [one for one in cases if (one.set, one.sort) == (which, sort)]
            marked, n = sum(bool(one.marked) for one in part), len(part)
            if sort == "true":  # by fact
                n, marked = sum(one.facts for one in part), sum(len(one.marked) for one in part)
            share = marked / max(n, 1)
            low, high = wilson(share, n)
            lines.append(f"{which + ' ' + sort:<18} {n:>5} {share:>7.1%} {low:>6.1%} {high:>6.1%}")
    return lines


def main(argv: list[str] | None = None) -> int:
    """Plant, check and report."""
    parser = argparse.ArgumentParser(prog="labs.harness.inventions", description=__doc__)
    parser.add_argument("--trees", type=Path, metavar="FOLDER", help="of downloads")
    parser.add_argument("--misses", action="store_true", help="tell what was judged wrong")
    args = parser.parse_args(argv)
    made = all_cases(args.trees)
    for one in made if args.misses else ():
        if bool(one.marked) == (one.sort == "true"):
            print(f"{one.set} {one.sort}: {one.question} -> {one.answer} {one.marked}")
    print("\n".join(report(made)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
