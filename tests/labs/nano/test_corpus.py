"""The generated corpus."""

import itertools
import json
import random
import re
from collections import Counter

import pytest

from labs.nano import phrasings, solve, unseen
from labs.nano.chatml import round_segments
from labs.nano.corpus import FAMILIES, draw, rounds
from labs.nano.files import MemoryFiles
from labs.nano.held_out import EVALUATED
from labs.nano.logs import make_log
from labs.nano.marks import ERRORS, SIGNS, compiled
from labs.nano.reports import make_report, reports
from labs.nano.settings import Setting, make_settings
from labs.nano.solve import mentioned
from labs.nano.talks import talk
from labs.nano.words import Lexicon, harvest
from labs.nano.writer import Writer

SLOTS = {
    "ERROR": "f", "KEY": "fk", "LINE": "fn", "LIST": "d", "LIST_HERE": "", "SEARCH": "w",
    "SEARCH_IN": "wd", "BOTH": "w", "PLURAL": "w", "ANY_KEY": "k", "ANY_ERROR": "",
    "WHERE": "wf", "LAST": "f", "OPEN": "f", "TWO_KEYS": "fkj", "TWO_ERRORS": "fg",
}  # fmt: skip
FRAME = {
    *(
        "The",
        "error",
        "in",
        "is:",
        "is",
        "There",
        "no",
        "file",
        "folder",
        "holds:",
        "Line",
        "says:",
    ),
    *("empty.", "mentioned", "mentions", "error.", "line", "lines", "on", "of", "a", "binary"),
    *("file;", "I", "can", "only", "read", "text.", "found", "does", "not", "mention", "and"),
    *("maybe", "more", "files", "(line", "are", "several:", "It", "as", "far", "searched."),
}
"""The words of nano's own; all others stand in the question or in what the tools returned."""


def test_a_seed_is_a_corpus() -> None:
    """The same seed gives the same rounds; another seed gives others."""
    first = rounds(11, 60, size=9)
    assert first == rounds(11, 60, size=9)
    assert first != rounds(12, 60, size=9)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("held_out", [False, True])
def test_answers_come_from_the_results(family: str, held_out: bool) -> None:
    """No answer has a word that is neither in the question nor in what the calls returned."""
    for item in rounds(3, 120, size=12, held_out=held_out, family=family):
        assert item.answer == item.answer.strip()
        if family in ("chat", "beyond"):
            continue
        known = " ".join([item.question, *(result for _, result in item.steps)])
        known += " ".join(str(call.arguments) for call, _ in item.steps)
        for word in item.answer.split():
            assert word in FRAME or word.rstrip(".,;:)").lstrip("(") in known, item.answer


def test_no_error_is_said_of_what_was_seen() -> None:
    """Where the search says that there is more than it shows, so does the answer."""
    ends = Counter[tuple[bool, bool]]()
    for item in rounds(5, 400, size=60, family="error"):
        if item.answer.startswith("There is no error in "):
            cut = item.steps[-1][1].split("\n")[-1].startswith("[cut: ")
            ends[cut, item.answer.endswith(", as far as I searched.")] += 1
    assert set(ends) == {(False, False), (True, True)}


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
            assert item.answer[18:].split(", ") == item.steps[-1][1].split("\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(set(reports()))))
def test_every_report_leads_to_its_message(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a report says went wrong is found by the search that it is made for."""
    pattern = sorted(set(reports()))[number]
    monkeypatch.setattr("labs.nano.reports.reports", lambda: (pattern,))
    found = 0
    for seed in range(20):
        log = make_report(Lexicon(random.Random(seed)), 12)
        assert len(log.errors) == len(log.places) == len(log.rows) >= 1
        assert log.lines[log.places[0] - 1] == log.rows[0]
        assert log.errors[0] in log.rows[0]
        assert not re.search(r"[«»]|\{[a-zA-Z]\d?\}", "\n".join(log.lines))
        wanted = SIGNS if log.weak else ERRORS
        marked = [row for row in log.lines if compiled(wanted).search(row)]
        strong = [row for row in log.lines if compiled(ERRORS).search(row)]
        if log.hidden:
            found += bool(marked) and log.rows[0] not in marked
        else:
            found += log.rows[0] in marked and not (log.weak and strong)
    assert found >= 8


def test_settings_say_where_they_stand() -> None:
    """Each setting's key and value are on its line, and its comment, if any, on the one before."""
    said = twice = 0
    for seed in range(300):
        words = Lexicon(random.Random(seed))
        made = make_settings(words, 6, twice=seed % 3 == 0, said=seed % 3 == 1)
        rows = made.text.split("\n")
        for item in made.items:
            assert item.key in rows[item.line - 1]
            assert item.value in rows[item.line - 1]
            assert item.said in rows[item.line - 2]
            said += bool(item.said)
        twice += len({item.key for item in made.items}) < len(made.items)
    assert said > 200
    assert twice >= 100


def test_described_settings_are_asked_for_in_other_words() -> None:
    """A search for what the question says, and what stands behind the comment; seldom the words
    stand on the setting's own line, too, and no more is read."""
    named = apart = read = 0
    for held_out in (False, True):
        for item in rounds(14, 80, size=8, held_out=held_out, family="described"):
            calls = [call for call, _ in item.steps]
            assert len(calls) <= 3 + ("error: no such " in item.steps[0][1])
            search = [call for call in calls if call.name == "search"][-1]
            assert calls[-1] is search or calls[-2] is search
            read += calls[-1].name == "read_file"
            words = re.split(r"\||\.\?", search.arguments["pattern"])
            asked = item.question.lower()
            single = [solve.singular(word) for word in asked.split()]
            assert all(word.lower() in asked or word.lower() in single for word in words)
            named += "path" in search.arguments
            apart += "|" in search.arguments["pattern"]
    assert 80 < named < 160
    assert apart > 100
    assert read >= 150


def test_a_question_that_names_no_key_is_searched_for_by_what_it_says() -> None:
    """All words but those that any question has; whether they stand side by side."""
    for ask, words, together in (
        ("how long may a *session* last in {f}", ["session", "last"], True),
        ("which *port* does {s} *listen* on", ["port", "listen"], False),
        ("*slow* *query* *log* in {f}?", ["slow", "query", "log"], True),
        ("how many *replicas* are there", ["replicas"], True),
        ("is it *off* by default", ["off"], True),
        ("It doesn't start. What's the *host*?", ["start", "host"], False),
    ):
        assert solve.sought(ask) == (words, together)


def test_a_phrase_that_stands_nowhere_is_searched_for_word_by_word() -> None:
    """The setting that has all words in key, heading and comment; none if there is none."""
    files = MemoryFiles({"a.ini": "[cache]\nhost = red\n[main]\nhost = blue\nsize_max = 9\n"})
    items = (
        Setting("host", "red", 2, section="cache"),
        Setting("host", "blue", 4, section="main"),
        Setting("size_max", "9", 5, section="main"),
    )
    for asked, answer, calls in (
        ("host of the cache", "host is red", 2),
        ("main host", "host is blue", 2),
        ("max size", "size_max is 9", 2),
        ("hosts", "host is red (line 2); blue (line 4)", 2),
        ("size max", "size_max is 9", 1),
        ("mail host", "There is no mail host in a.ini.", 2),
        ("port", "There is no port in a.ini.", 1),
    ):
        reply = solve.value(files, "a.ini", asked, items)
        assert reply is not None
        assert (reply.answer, len(reply.calls)) == (answer, calls)


def _says(question: str, path: str) -> bool:
    """Whether a question names a path: as it is, or as a name in a folder."""
    return path in question or all(part in question for part in path.rpartition("/")[::2])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["error", "key", "line", "where", "open", "list", "double"])
def test_a_file_is_asked_for_by_its_last_name(family: str) -> None:
    """The tool says where it is, and there the question is answered; or which ones there are."""
    again = both = 0
    for item in rounds(17, 500, size=6, family=family):
        (first, result), *then = item.steps
        if " (there is " in result:
            again += 1
            place = result.rpartition(" (there is ")[2][:-1]
            name = place.rpartition("/")[2]
            assert first.arguments["path"].rpartition("/")[2] == name
            assert _says(item.question, str(first.arguments["path"]))
            assert not re.search(rf"(?<![\w./-]){re.escape(place)}(?!/)", item.question)
            assert then[0][0].name == first.name
            assert then[0][0].arguments == {**first.arguments, "path": place}
            if "past its end" not in then[0][1]:
                assert not then[0][1].startswith("error: no such ")
        elif " (there are " in result:
            both += 1
            assert not then
            assert result.endswith(f" ({item.answer.replace('There are several: ', 'there are ')})")
    assert again > 15
    assert (both > 0) == (family not in ("list", "double"))


@pytest.mark.slow
def test_the_next_one_is_what_was_spoken_of() -> None:
    """After an error it is an error, after a line a line: the corpus does not contradict itself."""
    errors = lines = 0
    for seed in range(1600):
        items = talk(Writer(Lexicon(random.Random(seed)), 8))
        for before, item in itertools.pairwise(items):
            if not re.search(r"\bnext one", item.question.lower()):
                continue
            if before.answer.startswith(("The error i", "The next error is: ")):
                assert "next error" in item.answer or "no other error" in item.answer
                errors += 1
            elif before.answer.startswith("Line ") and before.steps:
                assert item.answer.startswith(("Line ", "There is no line "))
                lines += 1
    assert errors > 4, lines
    assert lines > 1, errors


def test_what_a_heading_names_is_on_or_off() -> None:
    """The search finds the heading, and the setting below it says whether it is on."""
    found = 0
    for item in rounds(19, 300, size=8, family="key"):
        (search, heading), (read, below) = (item.steps * 2)[-2:]
        key, _, value = item.answer.partition(" is ")
        if read.name == "read_file" and solve.same_key(key, solve.SWITCH):
            found += 1
            assert heading.count("\n") == 0
            assert search.arguments["pattern"] in item.question
            line = next(row for row in below.split("\n") if key in row)
            assert value in line
    assert found > 5


def test_a_number_of_things_is_found_by_the_things() -> None:
    """`number of retries` finds max_retries and, by a second search, retry_count; unless both do
    not say the same."""
    files = MemoryFiles({
        "a.ini": "retry_count = 5\nmax_workers = 4\nnode_count = 2\nnode_name = x\n",
    })  # fmt: skip
    items = (
        Setting("retry_count", "5", 1),
        Setting("max_workers", "4", 2),
        Setting("node_count", "2", 3),
        Setting("node_name", "x", 4),
    )
    for asked, answer, calls in (
        ("number of retries", "retry_count is 5", 2),
        ("retries", "retry_count is 5", 2),
        ("number of workers", "max_workers is 4", 1),
        ("number of queries", "There is no number of queries in a.ini.", 2),
    ):
        reply = solve.value(files, "a.ini", asked, items)
        assert reply is not None
        assert (reply.answer, len(reply.calls)) == (answer, calls)
    assert solve.value(files, "a.ini", "nodes", items) is None


@pytest.mark.slow
def test_what_a_question_names_is_what_is_called() -> None:
    """A path, a last name or a part of one, as it was said, however often its path was seen: the
    tools say where it is. Only where no file is named does the path come from further up."""
    pointed = parts = seen = 0
    for seed in range(400):
        known: set[str] = set()
        for item in talk(Writer(Lexicon(random.Random(seed)), 8)):
            for call, result in item.steps[:1]:
                path = str(call.arguments.get("path", "."))
                there = result.rpartition(" (there is ")[2][:-1] if " (there is " in result else ""
                if there:
                    pointed += 1
                    parts += "." not in path
                    seen += there in known
                    assert _says(item.question, path)
                elif path in item.files.texts and not _says(item.question, path):
                    assert path in known
                    name = re.escape(path.rpartition("/")[2])
                    assert not re.search(rf"(?<![\w/.-]){name}(?![\w/.-])", item.question)
            said = "\n".join((item.question, item.answer, *(r for _, r in item.steps)))
            known |= {path for path in item.files.texts if path in said}
            known |= {p for p in item.files.texts if p.rpartition("/")[2] in said}  # listed
    assert pointed > 100
    assert parts > 15
    assert seen > 30


@pytest.mark.slow
def test_the_last_line_is_the_last_one_with_words() -> None:
    """A file that is asked for its last line mostly ends in one that says something."""
    empty = told = 0
    for item in rounds(18, 600, size=9, family="line"):
        if any(call.arguments.get("start") == solve.FAR for call, _ in item.steps):
            lines = next(iter(item.files.texts.values())).removesuffix("\n").split("\n")
            told += item.answer == f"Line {len(lines)} says: {lines[-1].strip()}"
            empty += item.answer.endswith("is empty.")
    assert told > 40
    assert empty < told // 4


@pytest.mark.slow
def test_a_log_is_never_paged_through() -> None:
    """However long a log is, at most two searches and one read answer what went wrong in it."""
    long = 0
    for item in rounds(9, 300, size=70, family="error"):
        assert len(item.steps) <= 2 + item.steps[0][1].startswith("error: no such ")
        long += max(len(text) for text in item.files.texts.values()) > 50_000
    assert long > 20


@pytest.mark.slow
def test_conversations_go_on_about_the_same_files() -> None:
    """Two to six rounds over one set of files; most questions name less than the first does."""
    lengths: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(400):
        items = talk(Writer(Lexicon(random.Random(seed)), 8))
        lengths[len(items)] += 1
        assert len({id(item.files) for item in items}) == 1
        assert all(item.family == "follow" for item in items)
        for item in items[1:]:
            kinds[item.answer.split(":")[0]] += 1
    assert min(lengths[count] for count in (2, 3, 4, 5, 6)) > 20
    said = " ".join(kinds)
    for frame in ("The next error is", "There is no other error", "It is on line", "is set in"):
        assert frame in said
    assert kinds[solve.CANNOT] > 20


def test_what_is_beyond_it_is_said_in_one_sentence() -> None:
    """Counting, comparing, explaining, tables, changes and the world: one answer, no call."""
    for item in rounds(12, 200, size=6, family="beyond"):
        assert item.steps == ()
        assert item.answer == solve.CANNOT
    assert solve.CANNOT.count(".") == 1
    assert all(part in solve.CANNOT for part in ("cannot", "I can ", "-m", "triplepoint models"))


def test_names_of_files_are_of_many_kinds() -> None:
    """Names with spaces, without an extension, with several dots, of other scripts, and deep."""
    words = Lexicon(random.Random(3))
    names = [words.path(("log", "txt")) for _ in range(3000)]
    assert sum(" " in name for name in names) > 60
    assert sum(not name.isascii() for name in names) > 60
    assert sum("." not in name for name in names) > 40
    assert sum(name.count("/") > 2 for name in names) > 20
    assert sum(any(ord(sign) > 0xFFFF for sign in name) for name in names) > 3


@pytest.mark.slow
def test_errors_stand_anywhere_in_long_logs() -> None:
    """In long results the line that matters is as often in any quarter of the file."""
    quarters: Counter[int] = Counter()
    writer = Writer(Lexicon(random.Random(1)), 70, long=True)
    for _ in range(600):
        log = make_log(writer.words, writer.lines(), 1)
        quarters[4 * (log.places[0] - 1) // len(log.lines)] += 1
    assert min(quarters[q] for q in range(4)) > 110


def test_long_rounds_are_long() -> None:
    """Where a long result is asked for, most of the rounds are longer than 512 tokens."""
    writer = Writer(Lexicon(random.Random(2)), 70, long=True)
    lengths = [
        sum(len(s.text) for item in draw(writer) for s in round_segments(item)) for _ in range(100)
    ]
    assert sum(length > 2000 for length in lengths) > 55


@pytest.mark.slow
def test_calls_give_only_what_differs_from_the_defaults() -> None:
    """Arguments stand in schema order, without the default start or path."""
    order = ["path", "start", "end"], ["pattern", "path", "regex"]
    for item in rounds(5, 400, size=6):
        for call, _ in item.steps:
            names = list(call.arguments)
            assert any(names == [n for n in known if n in names] for known in order)
            assert call.arguments.get("start") != 1
            assert json.dumps(call.arguments)


@pytest.mark.slow
def test_every_family_is_drawn() -> None:
    """A few hundred rounds hold every family."""
    counts = Counter(item.family for item in rounds(2, 2000, size=6))
    assert set(counts) == set(EVALUATED)


def test_evaluation_shares_no_words_and_no_phrasings_with_training() -> None:
    """Held-out words and phrasings are other ones."""
    assert not set(harvest(False)) & set(harvest(True))
    assert len(harvest(True)) > 300
    names = [name for name in vars(unseen) if name.isupper()]
    assert len(names) >= len(FAMILIES)
    for name in names:
        assert not set(getattr(unseen, name)) & set(getattr(phrasings, name)), name


def test_held_out_results_name_no_file_that_is_not_there() -> None:
    """They are judged on a real disk; in training, some speak of files beside those of the case."""
    held, trained = (rounds(5, 40, size=4, held_out=held_out) for held_out in (True, False))
    assert not any(item.files.notes or item.files.regex_notes for item in held)
    assert any(item.files.notes or item.files.regex_notes for item in trained)


@pytest.mark.slow
def test_every_slot_of_a_question_is_filled() -> None:
    """No phrasing names a slot that its family does not fill."""
    for held_out in (False, True):
        for item in rounds(6, 800, size=4, held_out=held_out):
            assert not re.search(r"\{[a-z]\}", item.question)
    for module in (phrasings, unseen):
        for name, slots in SLOTS.items():
            used = set(re.findall(r"\{(.)\}", " ".join(getattr(module, name))))
            assert used <= {*slots, "s", "x"}, name
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
