"""The set of questions: `python -m labs.harness.questions FOLDER [--write]`.

`sets/` says what is asked and how its answer is found (`asked.py`); here the answers are computed
over the trees, and frozen in `frozen.json`, whose SHA-256 is below. No answer is typed by hand.
Without ``--write`` the command tells how the set is made up, and whether the frozen one is it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from . import asked
from .asked import Asked, Kind, Language
from .gold import Found, Line, Tree, Unclear
from .judge import content_digest, fold, holds
from .trees import NAMES, files_of, is_package

FROZEN = Path(__file__).with_name("frozen.json")
SHA256 = "fa9efedc3a745ac313aac041b98ca8d1381104fc112792a55e18da21a1689e2b"
"""Of `FROZEN`. It changes only together with the set, which is then another set."""


@dataclass(frozen=True)
class Turn:
    """One thing to ask, and the right answer."""

    ask: str
    need: tuple[tuple[str, ...], ...] = ()
    """Groups of forms; the answer needs one of each group."""
    none: tuple[str, ...] = ()
    """Values that the answer must not contain."""
    lines: tuple[Line, ...] = ()
    """Gold lines: path, number (0: the file's name), text of at most 120 characters."""
    note: str = ""
    """The computed answer, if no single line has it."""


@dataclass(frozen=True)
class Question:
    """A question about a tree, or a task in it."""

    id: str
    """Kind, tree, and a digest of the text."""
    kind: Kind
    language: Language
    tree: str
    turns: tuple[Turn, ...]
    unanswerable: bool = False
    """Whether the right answer is that there is none."""
    after: tuple[tuple[str, str], ...] = ()
    """Of tasks: the files that differ afterward, by path their content's digest, or "" for those
    that are deleted."""


_SET = TypeAdapter(list[Question])


def compute(trees: Iterable[str], room: Path | None = None) -> list[Question]:
    """Compute the questions and answers over some trees.

    Raises:
        Unclear: a tree does not have the one answer that a question supposes.
        OSError: a tree cannot be built.
    """
    wanted = set(trees)
    made: list[Question] = []
    known: dict[str, Tree] = {}
    for one in asked.read():
        if one.tree not in wanted:
            continue
        if one.tree not in known:
            known[one.tree] = Tree(files_of(one.tree, room))
        made.append(_computed(one, known[one.tree]))
    twice = [name for name, n in Counter(one.id for one in made).items() if n > 1]
    if twice:
        raise Unclear(f"asked twice: {twice}")
    return sorted(made, key=lambda one: one.id)


def _computed(one: Asked, tree: Tree) -> Question:
    texts = [turn.text for turn in one.turns]
    name = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:6]
    try:
        after = tuple(_after(one, tree))
        turns = tuple(
            Turn(turn.text) if after else _turn(turn.text, turn.find(tree)) for turn in one.turns
        )
        if one.kind not in ("absent", "edit") and not all(turn.need for turn in turns):
            raise Unclear("nothing has to be told")
        for turn in turns:
            given = [g for g in turn.need if any(holds(fold(turn.ask), form) for form in g)]
            if given and len(given) == len(turn.need) and one.kind != "plain":
                raise Unclear(f"the question tells the answer: {given}")
    except (Unclear, LookupError, ValueError) as error:
        raise Unclear(f"{one.tree}: {texts[-1]!r}: {error!r}") from None
    return Question(
        f"{one.kind}-{one.tree}-{name}", one.kind, one.language, one.tree, turns,
        one.kind == "absent", after,
    )  # fmt: skip


def _turn(text: str, found: Found) -> Turn:
    need = tuple(tuple(dict.fromkeys(group)) for group in found.need)
    none = tuple(one for one in dict.fromkeys(found.none) if not holds(fold(text), one))
    return Turn(text, need, none, found.lines, found.note)


def _after(one: Asked, tree: Tree) -> Iterable[tuple[str, str]]:
    for path, text in sorted(one.after(tree).items()) if one.changes else ():
        digest = "" if text is None else content_digest(text.encode())
        before = tree.files.get(path)
        if before is not None and content_digest(before) == digest:
            raise Unclear(f"the task changes nothing in {path}")
        yield path, digest


# ------------------------------------------------------------------------------ the frozen file


def packed(questions: Sequence[Question]) -> bytes:
    """Serialize a set: one question a line, without empty fields."""
    plain = _SET.dump_python(list(questions), mode="json", exclude_defaults=True)
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in plain)
    return f"[\n{lines}\n]\n".encode()


def frozen(path: Path = FROZEN, sha256: str | None = None) -> list[Question]:
    """Load the frozen set.

    Raises:
        ValueError: the file is not the one whose SHA-256 is known.
    """
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != (SHA256 if sha256 is None else sha256):
        raise ValueError(f"{path.name} is not the frozen set")
    return _SET.validate_json(data)


def sample(questions: Sequence[Question], number: int) -> list[Question]:
    """Return a fixed sample of a set, each kind by its share (largest remainders).

    Within a kind the order is that of a digest of the ids: adding questions of one kind does not
    change which of another are taken first.
    """
    if number >= len(questions):
        return list(questions)
    kinds: dict[str, list[Question]] = {}
    for one in questions:
        kinds.setdefault(one.kind, []).append(one)
    shares = {kind: number * len(several) / len(questions) for kind, several in kinds.items()}
    counts = {kind: int(share) for kind, share in shares.items()}
    for kind in sorted(shares, key=lambda k: (counts[k] - shares[k], k)):
        if sum(counts.values()) < number:
            counts[kind] += 1
    taken = [
        one
        for kind, several in kinds.items()
        for one in sorted(several, key=lambda q: _order(q.id))[: counts[kind]]
    ]
    return sorted(taken, key=lambda one: one.id)


def _order(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def main(argv: list[str] | None = None, say: Callable[[str], object] = print) -> int:
    """Compute the set; write it, or compare it with the frozen one."""
    parser = argparse.ArgumentParser(prog="labs.harness.questions", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of downloads")
    parser.add_argument("--write", action="store_true", help="freeze it, and tell the SHA-256")
    args = parser.parse_args(argv)
    made = compute(NAMES, args.folder)
    data = packed(made)
    package = sum(is_package(one.tree) for one in made)
    for kind, count in sorted(Counter(one.kind for one in made).items()):
        say(f"{kind:<10} {count:>4}")
    languages = ", ".join(f"{k} {n}" for k, n in Counter(one.language for one in made).items())
    say(f"{len(made)} questions, {package} over package trees; {languages}; {len(data):,} bytes")
    digest = hashlib.sha256(data).hexdigest()
    if args.write:
        FROZEN.write_bytes(data)
        say(f"SHA256 = {digest!r}")
        return 0
    say("as frozen" if digest == SHA256 else "not the frozen set")
    return int(digest != SHA256)


if __name__ == "__main__":
    raise SystemExit(main())
