"""Gather evidence for a question over a workspace: by code, before the model runs.

The evidence consists of calls of read tools, with the text that these return:

    list_dir(path)                               names
    read_file(path)                              a small file whole
    read_file(path, start, end)                  a line that is requested by its number
    table(path, query), count(path, pattern)     computed figures
    read_file(path, lines="1-3,17")              the passages of a long one that share most with
                                                 the question, or mark failures

Each can be made again (`Gatherer.rerun`) from its arguments and the workspace alone.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

from ...arguments import ProcessBound
from ...errors import ToolError
from ...tools import formats
from ...tools.count import count_lines
from ...tools.files import FileTools
from ...tools.paths import clean_path, printable, shown, some
from ...tools.policy import Policy
from ...tools.text import PACKED
from ...tools.workspace import Workspace
from .catalog import Catalog
from .excerpts import chosen, excerpt, spans
from .index import Index
from .naming import Missing, Names, named, unknown_names
from .question import Question, read
from .ranking import Line, Ranked, Ranking
from .reading import Text, Texts
from .reckoned import LIMIT, TABLES, Tables, is_table, of_files, of_lines

WALK, SCAN = 1.0, 0.7
"""Maximum seconds for a walk of the workspace, and for a scan of its files."""
OF_LISTING, OF_FEW, OF_NAMED, OF_SMALL, OF_BEST = 0.15, 0.05, 0.4, 0.12, 0.14
"""Shares of the token budget: for listings, and for those next to strong lines; for a whole file
that is named, and for one that is not; for repeating the best lines."""
BEST = 5  # lines that stand again before the question
PASSAGES = 5  # that are shown around lines
WITH_FIGURES = 2  # of both where it is reckoned: lines would be taken for the sum
CHARS_LISTED, CHARS_RECKONED = 1500, 400
REACH, TRIED = 8, 4  # lines whose files may be reckoned with where none is named; files tried
STRONG = 0.12  # of the question's words, by rarity: fewer in one place may be chance
CLEAR = 0.5  # of them: where lines say so much, names say little
FOLDERS = 4  # that are listed

Arguments = Mapping[str, object]


@dataclass(frozen=True)
class Call:
    """A call of a read tool, and its result."""

    tool: str
    """The name of a read tool, such as list_dir, read_file or table."""
    arguments: Arguments
    result: str
    """The result text that the model gets."""


@dataclass(frozen=True)
class Evidence:
    """The evidence that was gathered for a question."""

    calls: tuple[Call, ...] = ()
    """Calls and results, in the order in which the model gets them."""
    best: tuple[Line, ...] = ()
    """The best lines, which are repeated just before the question."""
    reckoned: tuple[Call, ...] = ()
    """The last of the calls, those that compute figures; also repeated before the question."""
    missing: tuple[Missing, ...] = ()
    """Names in the question that do not exist."""
    files: str = ""
    """The number of files, as text, if the question asks for it."""
    named: tuple[str, ...] = ()
    """Files that the question names."""
    folders: tuple[str, ...] = ()
    """Folders that the question names."""
    notes: tuple[str, ...] = ()
    """Notes on files that were skipped or not searched."""
    small_talk: bool = False
    """Whether the question is a greeting or thanks."""
    needs_files: bool = False
    """Whether the question is about files of the workspace, judging by its words."""
    acts: bool = False
    """Whether the question is a task that changes something."""
    strength: float = 0.0
    """Share of the question's words, by rarity, that the best line has: 0 to 1."""
    tokens: int = 0
    """Tokens of the calls' arguments and results, and of the best lines."""


@dataclass
class _Purse:
    """The token budget of evidence, and the calls paid from it."""

    count: Callable[[str], int]
    left: int
    calls: list[Call] = field(default_factory=list)
    per_char: float = 0.3

    def price(self, call: Call) -> int:
        return self.count(f"{json.dumps(dict(call.arguments), ensure_ascii=False)}\n{call.result}")

    def pay(self, call: Call, limit: float) -> bool:
        """Add a call if its tokens exceed neither `limit` nor the remaining budget."""
        price = self.price(call)
        if price > min(limit, self.left):
            return False
        self.left -= price
        self.calls.append(call)
        return True


class Gatherer(ProcessBound):
    """Gathers evidence over one workspace. Safe to use from several threads."""

    def __init__(
        self,
        workspace: Workspace,
        policy: Policy | None = None,
        *,
        cache: Path | None = None,
        index: bool = True,
        background: bool = True,
    ) -> None:
        """Open the catalog and the index; nothing is read yet.

        Args:
            workspace: the folder to search.
            policy: files that its rules hide or ask about are neither read, indexed nor named.
            cache: folder of the indexes; None: the user's cache.
            index: whether to index words on disk; else files are scanned each time.
            background: whether a thread updates the index after each question.
        """
        self.workspace = workspace
        self._texts = Texts(workspace)
        self._catalog = Catalog(workspace, policy, self._texts)
        self._index = Index(workspace.root, cache) if index else None
        self._ranking = Ranking(self._catalog, self._texts, self._index)
        self._tables = Tables(workspace)
        self._tools = FileTools(workspace, policy=policy)
        self._background = background
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._asking = threading.RLock()

    def close(self) -> None:
        """Stop the background thread, and close the index."""
        self._closed.set()
        if (thread := self._thread) is not None:
            thread.join()
        with self._asking:
            self._tables.close()
        if self._index is not None:
            self._index.close()

    @property
    def catalog(self) -> Catalog:
        """Return the catalog of files that may be read."""
        return self._catalog

    def refresh(self, *, deep: bool = True) -> None:
        """Update the catalog, checking every file if `deep`; useful while the user still types."""
        self._catalog.refresh(self._closed.is_set, deep=deep)

    def warm(self) -> bool:
        """Update the catalog and the index; return whether all files are indexed afterwards."""
        if self._index is None:
            return False
        self._catalog.refresh(deep=True)
        return self._index.update(self._catalog, self._texts, self._closed.is_set)

    def _warm_in_background(self) -> None:
        with self._lock:
            if self._closed.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self.warm, name="evidence", daemon=True)
            self._thread.start()

    # -------------------------------------------------------------------------- gathering

    def gather(
        self,
        question: str,
        earlier: Sequence[str] = (),
        documents: Collection[str] = (),
        read_last: Sequence[str] = (),
        *,
        budget: int,
        count: Callable[[str], int],
    ) -> Evidence:
        """Gather evidence for a question.

        Args:
            question: the question.
            earlier: questions and answers before it, the newest last.
            documents: names of piped or attached documents, which are read like named files.
            read_last: files that were read before, the newest last: a follow-up question is
                about them.
            budget: maximum tokens.
            count: counts the tokens of a text.
        """
        parsed = read(question, earlier)
        if parsed.small:
            return Evidence(small_talk=True)
        with self._asking:
            self._catalog.refresh(_after(WALK))
            names = named(parsed, self._catalog)
            files = [*documents, *names.files]
            if parsed.follows and not names.files:
                before = named(read(" ".join(earlier[-2:])), self._catalog)
                files += [*read_last[-1:]] or [*before.files[:1]]
            files = [one for one in dict.fromkeys(files) if self._is_there(one)]
            ranked = self._ranking.rank(parsed, files, time.monotonic() + SCAN)
            known = (*files, *(one.name for one in names.missing))
            unknown = unknown_names(parsed, ranked.unknown, known)
            if self._background and self._index is not None:
                self._warm_in_background()
            folder = next(iter(names.folders), ".")
            sizes = "" if files or unknown else of_files(self._catalog.files, folder, parsed)
            pointed = files or names.folders or names.missing or unknown or sizes
            if not (
                pointed
                or parsed.here
                or parsed.follows
                or parsed.faults
                or ranked.strength >= STRONG
            ):
                return Evidence(strength=ranked.strength)
            purse = _Purse(cache(count), budget)
            listed = bool(unknown or sizes)
            best, reckoned = self._laid_out(purse, parsed, names, files, ranked, listed)
            return Evidence(
                calls=tuple(purse.calls),
                best=best,
                reckoned=reckoned,
                files=sizes,
                missing=(*names.missing, *(Missing(one) for one in unknown)),
                folders=names.folders,
                named=tuple(one for one in files if one in names.files),
                notes=tuple(self._notes(ranked)),
                needs_files=True,
                acts=parsed.acts,
                strength=ranked.strength,
                tokens=budget - purse.left,
            )

    def _is_there(self, path: str) -> bool:
        return path in self._catalog.files or (
            not self._catalog.hides_above(path) and _opens(self.workspace, path)
        )

    def _laid_out(
        self,
        purse: _Purse,
        question: Question,
        names: Names,
        files: Sequence[str],
        ranked: Ranked,
        listed: bool,
    ) -> tuple[tuple[Line, ...], tuple[Call, ...]]:
        budget = purse.left
        sample = "\n".join(line.text[:200] for line in ranked.lines[:20])
        if len(sample) > 100:
            purse.per_char = purse.count(sample) / len(sample)
        listed |= bool(names.missing) and not files
        few = ranked.strength >= CLEAR and not listed
        self._list(purse, names, ranked, budget * (OF_FEW if few else OF_LISTING))
        if listed:
            return (), ()  # what other files say would be taken for what the missing one says
        alone = self._requested_lines(purse, question, files)
        best = alone or self._best(ranked, files)
        purse.left -= (reserved := min(self._cost(purse, best), int(budget * OF_BEST)))
        folder = next(iter(names.folders), "") if not files else ""
        reckoned = () if alone else self._reckon(purse, question, files, folder, ranked)
        best = best[:WITH_FIGURES] if reckoned else best
        if not alone:
            self._passages(purse, question, files, ranked, best)
        purse.calls += reckoned
        purse.left += reserved
        while best and self._cost(purse, best) > purse.left:
            best = best[:-1]
        purse.left -= self._cost(purse, best)
        return best, reckoned

    def _cost(self, purse: _Purse, lines: Sequence[Line]) -> int:
        return sum(purse.count(f"{one.path}:{one.number}:{one.text}\n") for one in lines)

    def _list(self, purse: _Purse, names: Names, ranked: Ranked, room: float) -> None:
        """Add `list_dir` calls: the named folders, the workspace, and others within the budget."""
        for path in names.folders:
            if (call := self._call("list_dir", {"path": path})) and purse.pay(call, 2 * room):
                room = max(room - purse.price(call), room / 2)
        hit = [line.path.rpartition("/")[0] or "." for line in ranked.lines[:BEST]]
        few = sorted(self._catalog.folders, key=lambda path: (path.count("/"), path))[:FOLDERS]
        for path in list(dict.fromkeys([".", *hit, *few]))[:FOLDERS]:
            if path not in names.folders and (call := self._call("list_dir", {"path": path})):
                before = purse.left
                if not purse.pay(call, room) and path != ".":
                    break
                room -= before - purse.left

    def _requested_lines(
        self, purse: _Purse, question: Question, files: Sequence[str]
    ) -> tuple[Line, ...]:
        """Read the lines requested by number, without neighbors, and return them."""
        if question.numbers is None or not files:
            return ()
        try:
            lines = self._texts.get(files[0]).lines
        except ToolError:
            return ()
        first, last = (n if n > 0 else len(lines) + 1 + n for n in question.numbers)
        if not 1 <= first <= len(lines):
            return ()
        last = min(last, len(lines))
        call = self._call("read_file", {"path": files[0], "start": first, "end": last})
        if call is None or not purse.pay(call, purse.left):
            return ()
        numbers = range(first, min(last, first + BEST - 1) + 1)
        return tuple(Line(files[0], n, _short(lines[n - 1])) for n in numbers)

    def _best(self, ranked: Ranked, files: Sequence[str]) -> tuple[Line, ...]:
        """Return the best lines, those of named files first, without duplicate texts."""
        found: dict[str, Line] = {}
        own = [line for line in ranked.lines if line.path in files]
        for line in [*own[: BEST - 1 if own else 0], *ranked.lines]:
            if line.text.strip():
                short = Line(line.path, line.number, _short(line.text), line.score)
                found.setdefault(f"{line.path}:{line.text.strip()}", short)
            if len(found) == BEST:
                break
        return tuple(found.values())

    def _reckon(
        self, purse: _Purse, question: Question, files: Sequence[str], folder: str, ranked: Ranked
    ) -> tuple[Call, ...]:
        """Run `table` and `count` on the file that best matches the question.

        folder: the one that the question names, if it names no file; counts cover all its files.
        """
        below = f"{folder}/" if folder else ""
        others = dict.fromkeys(
            line.path for line in ranked.lines[:REACH] if line.path.startswith(below)
        )
        texts: dict[str, Text] = {}
        for path in [*files, *(others if not files else ())][:TRIED]:
            with suppress(ToolError):
                texts[path] = self._texts.get(path)
        tables = [path for path, text in texts.items() if is_table(path, text)]
        if not files and (question.counts or not tables):  # or one that what it holds speaks for
            sizes = self._catalog.files.items()
            small = (p for p, (size, *_) in sizes if p.endswith(TABLES) and size <= LIMIT)
            tables += islice((path for path in small if path not in tables), TRIED)
        calls = self._calls("table", self._tables.meant(question, tables))
        if not calls and question.counts and texts:
            calls = self._calls("count", of_lines(texts, question, folder))
        before = len(purse.calls)
        for call in calls:
            purse.pay(call, purse.left / 2)
        paid = tuple(purse.calls[before:])
        del purse.calls[before:]
        return paid

    def _passages(
        self,
        purse: _Purse,
        question: Question,
        files: Sequence[str],
        ranked: Ranked,
        best: Sequence[Line],
    ) -> None:
        """Add `read_file` calls: named files, and passages around the best lines, the best last.

        Where a file is named, others give only their best lines, lest the model quote them for it.
        """
        wanted: dict[str, list[int]] = {path: [] for path in files}
        around = [line for line in ranked.lines if not files or line.path in files]
        for line in (*best, *around[: PASSAGES if len(best) > WITH_FIGURES else WITH_FIGURES]):
            wanted.setdefault(line.path, []).append(line.number)
        budget, before = purse.left, len(purse.calls)
        for path, numbers in wanted.items():
            ends = () if path not in files else (-1, -2, 1) if question.ends else (1, -1, 2, -2)
            whole = OF_NAMED if path in files else OF_SMALL
            self._show(purse, path, numbers, ends, budget * whole)
        purse.calls[before:] = reversed(purse.calls[before:])

    def _show(
        self, purse: _Purse, path: str, numbers: Sequence[int], ends: Sequence[int], whole: float
    ) -> None:
        """Add a `read_file` call: the whole file if it costs at most `whole` tokens, else lines."""
        try:
            text = self._texts.get(path)
        except ToolError:
            return
        lines = text.lines
        size = len(text.whole) * purse.per_char + 3 * len(lines)
        small = not text.cut and len(lines) <= formats.MAX_LINES and size <= 1.2 * whole
        if small and (call := self._call("read_file", {"path": path})) and purse.pay(call, whole):
            return
        first = [n if n > 0 else len(lines) + 1 + n for n in ends]
        for share in (0.9, 0.6, 0.35):  # what a line costs is a guess; the price is not
            taken = chosen(text, first, numbers, purse.left * share - 20, purse.per_char)
            if not taken:
                return
            call = self._call("read_file", {"path": path, "lines": spans(taken)})
            if call is not None and purse.pay(call, purse.left):
                return

    # ------------------------------------------------------------------------------ calls

    def _calls(self, tool: str, several: Iterable[Arguments]) -> list[Call]:
        return [call for one in several if (call := self._call(tool, one)) is not None]

    def _call(self, tool: str, arguments: Arguments) -> Call | None:
        """Make a call and return it with its result; None if it is denied or fails."""
        if not self._catalog.allows(tool, dict(arguments)):
            return None
        try:
            return Call(tool, arguments, self._result(tool, arguments))
        except ToolError:
            return None

    def rerun(self, tool: str, arguments: Arguments) -> str:
        """Run a call again on the workspace as it is now; return its result.

        Raises:
            ToolError: the call fails now, or is none that evidence consists of.
        """
        path = arguments.get("path", ".")
        if not isinstance(path, str) or self._catalog.hides_above(clean_path(path)):
            raise ToolError(formats.no_such_path(shown(str(path))))
        with self._asking:
            self._catalog.refresh(_after(WALK))
            return self._result(tool, arguments)

    def _result(self, tool: str, arguments: Arguments) -> str:
        path = str(arguments.get("path", "."))
        if tool == "list_dir":
            names = self._catalog.listing(path)
            if names is None:
                raise ToolError(formats.no_such_folder(shown(path)))
            return formats.list_result(
                map(printable, names), folder=shown(path), max_chars=CHARS_LISTED
            )
        if tool == "table":
            table = self._tables.get(path).table
            return table.answer(str(arguments.get("query")), CHARS_RECKONED, told=False)
        if tool == "count":
            pattern, by = str(arguments.get("pattern", "")), str(arguments.get("by", ""))
            regex = arguments.get("regex") is True
            return count_lines(
                self.workspace, pattern, path, by, regex, max_chars=CHARS_RECKONED,
                takes=lambda below: not self._catalog.hides_above(below),
            )  # fmt: skip
        if tool == "read_file" and "lines" in arguments:
            text = self._texts.get(path)
            return excerpt(text.lines, str(arguments["lines"]), text.cut)
        if tool == "read_file":
            return self._read(path, arguments)
        raise ToolError(f"no call of an evidence: {tool}")

    def _read(self, path: str, arguments: Arguments) -> str:
        start, end = arguments.get("start", 1), arguments.get("end")
        if not isinstance(start, int) or not isinstance(end, int | None):
            raise ToolError("start and end must be whole numbers")
        if not path.endswith(PACKED):
            return self._tools.read_file(path, start, end)
        lines = self._texts.get(path).lines
        if lines and start > len(lines):
            raise ToolError(formats.past_the_end(shown(path), len(lines), start))
        return formats.read_result(lines, start, end)

    # ------------------------------------------------------------------------------ notes

    def _notes(self, ranked: Ranked) -> list[str]:
        notes = []
        if passed := self._catalog.passed:
            notes.append(f"passed over (ignored, or made by programs): {some(passed)}")
        if not self._catalog.whole:
            notes.append("not all folders were listed in time")
        if ranked.unsearched:
            all_files = ranked.searched + ranked.unsearched
            notes.append(f"{ranked.unsearched:,} of {all_files:,} files were not searched in time")
        return notes


def _opens(workspace: Workspace, path: str) -> bool:
    try:
        workspace.open(path).close()
    except ToolError:
        return False
    return True


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _short(text: str) -> str:
    return formats.cut_text(text, formats.MAX_HIT)
