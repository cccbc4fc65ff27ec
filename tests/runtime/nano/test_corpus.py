"""The generated corpus."""

import json
import random
import re
from collections import Counter

import pytest

from triplepoint.runtime.nano import phrasings, unseen
from triplepoint.runtime.nano.chatml import round_segments
from triplepoint.runtime.nano.corpus import FAMILIES, draw, rounds
from triplepoint.runtime.nano.logs import make_log
from triplepoint.runtime.nano.searches import mentioned
from triplepoint.runtime.nano.words import Lexicon, harvest
from triplepoint.runtime.nano.writer import Writer

SLOTS = {
    "ERROR": "f", "KEY": "fk", "LINE": "fn", "LIST": "d", "LIST_HERE": "", "SEARCH": "w",
    "SEARCH_IN": "wd", "BOTH": "w", "PLURAL": "w", "ANY_KEY": "k", "ANY_ERROR": "",
}  # fmt: skip


def test_a_seed_is_a_corpus() -> None:
    """The same seed gives the same rounds; another seed gives others."""
    first = rounds(11, 60, size=9)
    assert first == rounds(11, 60, size=9)
    assert first != rounds(12, 60, size=9)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("held_out", [False, True])
def test_answers_come_from_the_results(family: str, held_out: bool) -> None:
    """What an answer copies stands in the last result or in the question."""
    frames = {
        "error": r"The error is: (?P<result>.*)|There is no error in (?P<question>.*)\.",
        "key": r"There is no (?P<question2>.*) in .*\.|(?P<question>.*?) is (?P<result>.*)",
        "line": r"Line \d+ says: (?P<result>.*)|Line .* is empty\."
        r"|There is no line .*",
        "list": r"The folder holds: .*|.* is a file\.|The folder is empty\.|There is no folder .*",
        "search": r"(?P<question>.*?) is mentioned in .*|No file mentions (?P<question2>.*)\.",
        "search_error": r"(?P<question>.*) is mentioned in .*?\. "
        r"(The error is: (?P<result>.*)|There is no error in .*)|No file mentions .*",
        "any_error": r"The error in (?P<result>.*) is: (?P<result2>.*)|I found no error\.",
        "any_key": r"(?P<question>.*?) in (?P<result>.*?) is (?P<result2>.*)|No file mentions .*\.",
        "missing": r"There is no file (?P<question>.*)\.|(?P<question2>.*) is a folder\.",
        "chat": r"[A-Z].*",
    }
    answered = 0
    for item in rounds(3, 120, size=12, held_out=held_out, family=family):
        match = re.fullmatch(frames[family], item.answer)
        assert match, item.answer
        last = item.steps[-1][1] if item.steps else ""
        for name, text in match.groupdict().items():
            if text is not None:
                assert text in (last if name.startswith("result") else item.question)
        answered += any(match.groupdict().values())
    assert family in ("list", "chat") or answered > 90


def test_a_list_names_every_entry_once_in_order() -> None:
    """Names of folders and of files that mention a word, as the result has them."""
    cut = 0
    for item in rounds(8, 300, size=60, family="search"):
        if " is mentioned in " in item.answer:
            result = item.steps[0][1]
            shown, more = mentioned(result)
            ending = ", and maybe in more files" if more else ""
            cut += more
            assert item.answer.endswith(f" is mentioned in {', '.join(shown)}{ending}")
            assert shown == sorted(set(shown), key=str.encode)
            assert set(shown) <= set(item.files.texts)
            assert more == ("\n[cut: " in result)
    assert cut >= 5
    for item in rounds(8, 100, size=30, family="list"):
        if item.answer.startswith("The folder holds: "):
            assert item.answer[18:].split(", ") == item.steps[0][1].split("\n")


def test_long_files_are_read_on_until_the_error() -> None:
    """Each read starts where the one before was cut, and only the last one shows the error."""
    reads = 0
    for item in rounds(9, 200, size=70, family="error"):
        *before, (last, result) = item.steps
        reads = max(reads, len(item.steps))
        if item.answer.startswith("The error is: "):
            assert item.answer.removeprefix("The error is: ") in result
        for (_, shown), (call, _) in zip(before, item.steps[1:], strict=True):
            assert shown.endswith(f"read on with start={call.arguments['start']}]")
        assert "[cut: " not in result or item.answer.startswith("The error is: "), last
    assert reads >= 3


def test_errors_stand_anywhere_in_long_logs() -> None:
    """In long results the line that matters is as often in any quarter of the file."""
    quarters: Counter[int] = Counter()
    writer = Writer(Lexicon(random.Random(1)), 70, long=True)
    for _ in range(600):
        log = make_log(writer.words, writer.lines(), 1)
        quarters[4 * (log.places[0] - 1) // len(log.lines)] += 1
    assert min(quarters[q] for q in range(4)) > 110


def test_long_rounds_are_long() -> None:
    """Where a long result is asked for, few of the rounds fit into 512 tokens' worth of text."""
    writer = Writer(Lexicon(random.Random(2)), 70, long=True)
    lengths = [sum(len(s.text) for s in round_segments(draw(writer))) for _ in range(100)]
    assert sum(length > 2000 for length in lengths) > 65


def test_calls_give_only_what_differs_from_the_defaults() -> None:
    """Arguments stand in schema order, without the default start or path."""
    order = ["path", "start", "end"], ["pattern", "path"]
    for item in rounds(5, 400, size=6):
        for call, _ in item.steps:
            names = list(call.arguments)
            assert any(names == [n for n in known if n in names] for known in order)
            assert call.arguments.get("start") != 1
            assert json.dumps(call.arguments)


def test_every_family_is_drawn() -> None:
    """A few hundred rounds hold every family."""
    counts = Counter(item.family for item in rounds(2, 600, size=6))
    assert set(counts) == set(FAMILIES)


def test_evaluation_shares_no_words_and_no_phrasings_with_training() -> None:
    """Held-out words and phrasings are other ones."""
    assert not set(harvest(False)) & set(harvest(True))
    assert len(harvest(True)) > 300
    names = [name for name in vars(unseen) if name.isupper()]
    assert len(names) >= len(FAMILIES)
    for name in names:
        assert not set(getattr(unseen, name)) & set(getattr(phrasings, name))


def test_every_slot_of_a_question_is_filled() -> None:
    """No phrasing names a slot that its family does not fill."""
    for held_out in (False, True):
        for item in rounds(6, 800, size=4, held_out=held_out):
            assert not re.search(r"\{[a-z]\}", item.question)
    for module in (phrasings, unseen):
        for name, slots in SLOTS.items():
            used = set(re.findall(r"\{(.)\}", " ".join(getattr(module, name))))
            assert used <= {*slots, "x"}, name
            assert all(any(f"{{{s}}}" in way for s in slots) or not slots
                       for way in getattr(module, name)), name  # fmt: skip


@pytest.mark.parametrize(
    "name", ["ERROR", "KEY", "LINE", "LIST", "SEARCH", "BOTH", "ANY_KEY", "ANY_ERROR"]
)
def test_people_ask_in_many_ways(name: str) -> None:
    """At least 25 different phrasings of each main question."""
    assert len(set(getattr(phrasings, name))) >= 25


def test_the_question_of_the_readme_is_trained() -> None:
    """The command that the README shows is one of the phrasings."""
    assert "what's the error in {f}" in phrasings.ERROR
