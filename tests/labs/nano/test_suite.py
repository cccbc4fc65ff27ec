"""The hand-written judge set: sound, large enough, and not to be had from the generator."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import labs.nano
from labs.nano.corpus import FAMILIES, rounds
from labs.nano.suite import judge_talk, main, show_misses, table
from labs.nano.words import harvest
from triplepoint import Engine
from triplepoint.runtime.suites.suite_files import FOLLOW_UP, Folder, Talk, Turn, read_suite
from triplepoint.runtime.suites.verdict import LONGEST, fold, holds

GENERATOR = Path(labs.nano.__file__).parent
SUITE = GENERATOR / "suite"
OURS = ("suite.py",)  # the judge is no part of the generator
DEVELOPMENT = GENERATOR / "development"
DOCUMENTS = "documents"  # its files and some of its questions are those of README and docs


@pytest.fixture(scope="module")
def suite() -> list[Folder]:
    """The whole set."""
    return read_suite(SUITE)


def talks(suite: list[Folder]) -> Iterator[Talk]:
    """All conversations."""
    for folder in suite:
        yield from folder.talks


# ---------------------------------------------------------------------------- what it is made of


@pytest.mark.slow
def test_it_is_as_large_as_it_should_be(suite: list[Folder], tmp_path: Path) -> None:
    """300 questions, 60 files, 100 follow-ups in conversations of two to six turns at least."""
    turns = [turn for talk in talks(suite) for turn in talk.turns]
    lengths = [len(talk.turns) for talk in talks(suite)]
    files = 0
    for folder in suite:
        root = tmp_path / folder.name
        folder.write(root)
        files += sum(path.is_file() and not path.is_symlink() for path in root.rglob("*"))

    assert len(turns) >= 300
    assert files >= 60
    assert sum(lengths) - len(lengths) >= 100
    assert set(lengths) == {1, 2, 3, 4, 5, 6}


def test_every_family_is_large_enough_for_a_share(suite: list[Folder]) -> None:
    """A family has 15 questions at least: below that one answer moves it by too much."""
    families = [talk.family_of(n) for talk in talks(suite) for n in range(len(talk.turns))]
    assert min(families.count(family) for family in families) >= 15
    assert families.count(FOLLOW_UP) >= 100


def test_it_has_the_kinds_of_files_that_machines_have(suite: list[Folder], tmp_path: Path) -> None:
    """Long logs, empty and binary files, links, empty folders, and names of every sort."""
    texts = {name: text for folder in suite for name, text in folder.texts.items()}
    lengths = [text.count("\n") for text in texts.values()]
    names = "\n".join(texts)

    assert max(lengths) == 10_000
    assert sum(length >= 100 for length in lengths) >= 10
    assert 0 in lengths
    assert any(folder.binary for folder in suite)
    assert sum(bool(folder.links) for folder in suite) >= 3
    assert sum(bool(folder.folders) for folder in suite) >= 3
    assert " " in names
    assert "ü" in names
    assert "見" in names
    assert max(name.count("/") for name in texts) >= 4
    assert any("." not in name for name in texts)


def test_no_question_is_asked_twice(suite: list[Folder]) -> None:
    """One folder has a first question once."""
    for folder in suite:
        asked = [fold(talk.turns[0].ask) for talk in folder.talks if len(talk.turns) == 1]
        assert len(set(asked)) == len(asked)


@pytest.mark.slow
def test_expected_facts_are_in_the_files(suite: list[Folder], tmp_path: Path) -> None:
    """Whatever an answer must hold stands in a file, in a name or in what was asked."""
    for number, folder in enumerate([*suite, *read_suite(DEVELOPMENT)]):
        root = tmp_path / str(number)
        folder.write(root)
        paths = list(root.rglob("*"))
        known = [fold(path.read_bytes().decode(errors="replace")) for path in paths
                 if path.is_file()]  # fmt: skip
        known += [fold(path.relative_to(root).as_posix()) for path in paths]
        for talk in folder.talks:
            asked: list[str] = []
            for turn in talk.turns:
                asked.append(fold(turn.ask))
                for fact in (fact for group in turn.has for fact in group):
                    assert any(holds(text, fact) for text in (*known, *asked)), (turn.ask, fact)


def test_rules_can_be_obeyed(suite: list[Folder]) -> None:
    """No question forbids what it demands, and none demands more than an answer may hold."""
    for talk in talks(suite):
        for turn in talk.turns:
            needed = [min(group, key=len) for group in (*turn.has, *turn.says)]
            assert sum(map(len, needed)) < LONGEST // 2
            assert not (turn.cannot and (turn.has or turn.says or turn.none or turn.absent))
            assert not any(holds(fold(" ".join(needed)), fact) for fact in turn.lacks)


# ------------------------------------------------------------------- kept apart from the training


def bare(text: str) -> str:
    """A question without its case, signs and spaces at the edges of words."""
    return " ".join(re.findall(r"[\w./@-]*\w", fold(text)))


def questions(suite: list[Folder]) -> list[str]:
    """The questions that must be the set's own: all but those that a document shows.

    Follow-ups of up to three words are left out: "and line 3?" is what anyone says, and asks
    nothing without the conversation before it, which begins with a question of the set.
    """
    return [
        turn.ask
        for talk in talks(suite)
        if talk.folder != DOCUMENTS
        for place, turn in enumerate(talk.turns)
        if not place or len(turn.ask.split()) > 3
    ]


def literals() -> set[str]:
    """The string constants of the generator's source: all that is not drawn by chance."""
    found: set[str] = set()
    for path in GENERATOR.glob("*.py"):
        if path.name not in OURS:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            found |= {n.value for n in nodes if isinstance(n, ast.Constant)
                      and isinstance(n.value, str)}  # fmt: skip
    for name in ("asked.txt", "described.txt"):
        rows = (GENERATOR / name).read_text(encoding="utf-8").replace("*", "").split("\n")
        found |= {part.strip() for row in rows for part in row.split("|")}
    return found


def test_the_development_set_is_another_one(suite: list[Folder]) -> None:
    """Whoever writes the corpus looks at its questions: none is one of the judge set."""
    theirs = read_suite(DEVELOPMENT)
    assert sum(len(talk.turns) for talk in talks(theirs)) > 200
    both = {bare(ask) for ask in questions(theirs)} & {bare(ask) for ask in questions(suite)}
    assert not both, both  # a failure shows these alone, no other question of the set
    files = {text for folder in suite for text in folder.texts.values() if text}
    same = files & {text for folder in theirs for text in folder.texts.values()}
    assert not same, len(same)


@pytest.mark.slow
def test_no_question_fits_a_phrasing_of_the_generator(suite: list[Folder]) -> None:
    """No phrasing in its source, with words for its slots, is a question of the set.

    Phrasings of fewer than two words of their own are left out: `{k} in {f}` says nothing.
    """
    ways = []
    for text in literals():
        own = bare(re.sub(r"\{\w*\}", " ", text))
        if len(own.split()) >= 2 and len(text) < 200:
            parts = re.split(r"\{\w*\}", fold(text).rstrip(" ?.!"))
            ways.append(re.compile(r"\S+".join(map(re.escape, parts))))
    assert len(ways) > 100
    asked = [fold(ask).rstrip(" ?.!") for ask in questions(suite)]
    # The ways, not the questions: whoever mends the corpus reads this.
    found = [way.pattern for way in ways if any(map(way.fullmatch, asked))]
    assert not found, found


@pytest.mark.slow
@pytest.mark.parametrize("held_out", [False, True])
def test_what_the_generator_draws_is_not_in_it(suite: list[Folder], held_out: bool) -> None:
    """In thousands of its rounds there is no question, no file and no long line of the set."""
    folders = [folder for folder in suite if folder.name != DOCUMENTS]
    asked = {bare(ask) for ask in questions(suite)}
    texts = {text for folder in folders for text in folder.texts.values() if text}
    lines = {line.strip() for text in texts for line in text.split("\n") if is_own(line)}
    drawn = [
        item
        for seed, family in enumerate(FAMILIES)
        for item in rounds(400 + seed, 250, size=12, held_out=held_out, family=family)
    ]
    made = {text for item in drawn for text in item.files.texts.values()}
    assert len(drawn) >= 2000
    same = {bare(item.question) for item in drawn} & asked
    assert not same, same
    assert not made & texts
    assert not {line.strip() for text in made for line in text.split("\n")} & lines


# Lines that real programs print as they are, whoever writes a file of theirs.
PRINTED = {
    "#1 [internal] load build definition from Dockerfile",
    "=========================== short test summary info ============================",
    "ERROR: ResolutionImpossible: for help visit "
    "https://pip.pypa.io/en/latest/topics/dependency-resolution/",
    "FAILURE: Build failed with an exception.",
    "TASK [Gathering Facts] *********************************************************",
    "The conflict is caused by:",
    "[ERROR] COMPILATION ERROR :",
    "[INFO] Scanning for projects...",
    "collect2: error: ld returned 1 exit status",
    "npm error Could not resolve dependency:",
    "npm error ERESOLVE unable to resolve dependency tree",
    "npm error code ERESOLVE",
}


def is_own(line: str) -> bool:
    """Whether a line says something: rules, `Traceback (most…` and the like stand everywhere."""
    return len(set(line)) >= 15 and "most recent call last" not in line and line not in PRINTED


def test_every_file_has_words_that_the_generator_lacks(suite: list[Folder]) -> None:
    """A word of each file is in no word list and no text of the generator.

    It could come about only as a made-up string, whose letters are drawn one by one.
    """
    known = {*harvest(False), *harvest(True)}
    for text in literals():
        known.update(re.findall(r"[^\W\d_]+", text.lower()))
    plain = [
        f"{folder.name}: {name}"
        for folder in suite
        for name, text in folder.texts.items()
        if text and not set(re.findall(r"[^\W\d_]{3,}", text.lower())) - known
    ]
    assert not plain, plain


# --------------------------------------------------------------------------------- the runner


def test_a_conversation_is_held_by_one_agent(engine: Engine, tmp_path: Path) -> None:
    """Turns are judged one by one, with their calls, over real files; the tables count them."""
    (tmp_path / "app.log").write_text("INFO up\nERROR payment: connection to db-2 refused\n")
    turns = (
        Turn("What's the error in app.log?", has=(("connection to db-2 refused",),)),
        Turn("Thanks!", says=(("no such word",),)),
    )
    first, second = judge_talk(engine, tmp_path, Talk("here", "log error", turns))

    assert first.right
    assert first.calls
    assert (first.family, second.family) == ("log error", FOLLOW_UP)
    assert not second.right
    assert second.miss == "wrong text, no call"
    assert "| log error | 1/1 (100%) | 0 | 0 |" in table([first, second])
    assert "| 2 turns | 1/2 (50%) | 0 | 0 |" in table([first, second])
    assert any("Thanks!" in line for line in show_misses([first, second]))


@pytest.mark.slow
def test_two_runs_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The judge is greedy and the files are the same each time: so are tables and verdicts."""
    shown = []
    for workers in ("1", "2"):
        out = tmp_path / f"{workers}.json"
        monkeypatch.setattr("sys.argv", ["suite", str(SUITE / f"{DOCUMENTS}.toml"), "--misses",
                                         "--workers", workers, "--json", str(out)])  # fmt: skip
        main()
        shown.append((capsys.readouterr().out, json.loads(out.read_text(encoding="utf-8"))))

    assert shown[0] == shown[1]
    report, verdicts = shown[0]
    assert "| documents |" in report
    assert verdicts[0]["ask"] == "What's the error in app.log?"
    assert verdicts[0]["right"]
    assert all(one["right"] == (one["miss"] is None) for one in verdicts)
