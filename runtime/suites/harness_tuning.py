"""Which settings of the harness suit one model file: ranked without decoding, then tried.

First each setting is ranked: the prompt that it makes of a question is read once, and what may be
said (`fresh_questions`) is scored by its log-probability. A setting's score is the mean over the
questions of the share that the right text has among all of them, 0 to 1. Changes that are above the
default are ranked together as well.

Then the best and the default answer fresh questions, greedily, each question by both. **The rule**:
the best is kept if it has at least as many right answers as the default on the same questions; else
the default is. Thirty questions tell no more than about 15 points either way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import LimitReachedError, SettingError
from ...tools.groups import make_group
from ..agent.agent import Agent
from ..agent.config import is_bare, is_remote
from ..agent.harness.defaults import DEFAULTS
from ..agent.harness.tuned import Tuned, shown
from ..agent.prefix_reuse import common_prefix
from ..evaluate.perplexity import log_probabilities
from ..inference.sampling import Sampling
from ..replay.dry_run import next_prompt
from .attempt import let_go
from .fresh_questions import Fresh, Question
from .statistics import wilson

if TYPE_CHECKING:
    from ..agent.remote import RemoteEngine
    from ..inference.engine import Engine
    from ..inference.session import Session

Settings = dict[str, bool | int]
Progress = Callable[[str, float], None]
"""Called with what is being done and the seconds that are left, as predicted."""

ON_SERVER = (
    "the model runs on a server, which does not say how likely it finds a text; only the harness "
    "of a model file can be tuned"
)
CHANGES: tuple[Settings, ...] = (
    {},
    {"evidence_tokens": 600},
    {"evidence_tokens": 3000},
    {"best_lines": 2},
    {"examples": True},
    {"plain_tools": True},
)
"""Of the default, what is ranked."""
KINDS = 10  # questions of a folder
RANKED, ASKED = (10, 30), (10, 50)  # questions of each part, at least and at most
FIRST = 3  # of them, by which the time is predicted
UNSEEN = 1000  # folder from which on questions are answered
RANKING = 0.45  # of the time
ANSWER = 40  # tokens of an answer, for the prediction
MAX_ANSWER = 300


@dataclass
class Ranked:
    """One setting.

    Attributes:
        change: of the default.
        shares: of the right text, by question; tokens: of the prompts.
    """

    change: Settings
    shares: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def score(self) -> float:
        """Mean of the shares."""
        return fmean(self.shares)

    @property
    def mean_tokens(self) -> float:
        """Of a prompt."""
        return fmean(self.tokens)


@dataclass
class Report:
    """What was found.

    Attributes:
        ranking: best first.
        best: the change that was tried; empty where it is the default.
        gained, lost: questions that only the best, and only the default, had right.
        tuned: what is to be kept.
        predicted_s, seconds: that it was to take after the first questions, and took in all.
    """

    ranking: list[Ranked]
    best: Settings
    gained: int
    lost: int
    tuned: Tuned
    predicted_s: float
    seconds: float


def check_tunable(engine: Engine | RemoteEngine) -> None:
    """Whether there is anything to tune.

    Raises:
        SettingError: there is not; says why.
    """
    if is_remote(engine):
        raise SettingError(ON_SERVER)
    if is_bare(engine):
        raise SettingError(f"{engine.model.name} was trained on the bare loop; nothing to tune")


class HarnessTuner:
    """One tuning of one engine.

    Args:
        folder: where its questions' folders are made.
        minutes: that it may take; on a slow machine the fewest questions take longer.
        on_start: hears, once that is known, of the questions that are ranked and that are answered
            and of the seconds that all will take.
    """

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        *,
        minutes: float = 10,
        seed: int = 0,
        progress: Progress = lambda *_: None,
        on_start: Callable[[int, int, float], None] = lambda *_: None,
    ) -> None:
        self._engine, self._folder, self._seed = engine, folder, seed
        self._budget, self._progress, self._on_start = 60 * minutes, progress, on_start
        self._sessions: dict[str, Session] = {}  # by what their prompts begin with
        self._known: dict[tuple[Any, ...], float] = {}
        self._folders: dict[Path, Fresh] = {}
        self._began = self._end = time.monotonic()

    def run(self) -> Report:
        """Rank, try, and say what is to be kept; see the module.

        Raises:
            ContextOverflowError: a prompt does not fit the context of the engine.
        """
        ranking = [Ranked(change) for change in CHANGES]
        try:
            times = [self._rank(ranking, n) for n in range(FIRST)]  # the first reads the tools
            whole, each = (fmean(column) for column in zip(*times[1:], strict=True))
            answer = each + ANSWER * self._token_seconds()
            spent = time.monotonic() - self._began
            ranked = _within(RANKED, FIRST + (RANKING * self._budget - spent) / (whole + each))
            seconds = (ranked - FIRST) * whole + ranked * each
            asked = _within(ASKED, (self._budget - spent - seconds) / (2 * answer))
            predicted = seconds + 2 * asked * answer
            self._end = time.monotonic() + predicted
            self._on_start(ranked, asked, predicted)
            for n in range(FIRST, ranked):
                self._tell(f"ranking settings, question {n + 1} of {ranked}")
                self._rank(ranking, n)
            self._rank_together(ranking)
        finally:
            for session in self._sessions.values():
                session.close()
        ranking.sort(key=lambda one: -one.score)  # of equals the first
        best = ranking[0].change
        pairs = self._answers(best, asked)
        n, right = len(pairs), [sum(column) for column in zip(*pairs, strict=True)]
        keep = right[0] >= right[1]
        rate = right[0 if keep else 1] / n
        tuned = Tuned(
            settings=best if keep else {},
            date=time.strftime("%Y-%m-%d", time.gmtime()),
            version=version("triplepoint"),
            questions=n,
            rate=round(rate, 4),
            low=round(wilson(rate, n)[0], 4),
            high=round(wilson(rate, n)[1], 4),
            default_rate=round(right[1] / n, 4),
        )
        return Report(
            ranking,
            best,
            gained=sum(a > b for a, b in pairs),
            lost=sum(a < b for a, b in pairs),
            tuned=tuned,
            predicted_s=predicted,
            seconds=time.monotonic() - self._began,
        )

    # ---------------------------------------------------------------------------- ranking

    def _rank(self, ranking: Sequence[Ranked], number: int) -> tuple[float, float]:
        """Ask one question under each setting; seconds of all, and of the first."""
        began = time.perf_counter()
        question, root = self._question(number)
        self._add(ranking[0], question, root)
        first = time.perf_counter() - began
        for one in ranking[1:]:
            self._add(one, question, root)
        return time.perf_counter() - began, first

    def _rank_together(self, ranking: list[Ranked]) -> None:
        """Rank what is above the default together; of two values of a setting the better one."""
        better = sorted((o for o in ranking if o.score > ranking[0].score), key=lambda o: o.score)
        together = {name: value for one in better for name, value in one.change.items()}
        if len(together) > 1:
            ranking.append(Ranked(together))
            for n in range(len(ranking[0].shares)):
                self._tell(f"ranking {shown(together)}")
                self._rank(ranking[-1:], n)

    def _add(self, ranked: Ranked, question: Question, root: Path) -> None:
        """Add the share of the right text of one question under one setting."""
        agent = self._agent(ranked.change, question, root)
        try:
            ids = next_prompt(agent, question.turn.ask).ids
            said = [
                one if isinstance(one, str) else agent.chat.form.render([one])
                for one in question.said
            ]
            begins = repr((agent.config.system, agent.tools.schemas()))
        finally:
            let_go(agent)
        key = (tuple(ids), *said)  # settings often make no difference
        if key not in self._known:
            encode = self._engine.tokenizer.encode
            session = self._sessions.setdefault(begins, self._engine.session())
            self._known[key] = share(session, ids, [encode(one, special=True) for one in said])
        ranked.shares.append(self._known[key])
        ranked.tokens.append(len(ids))

    # ---------------------------------------------------------------------------- answers

    def _answers(self, best: Settings, questions: int) -> list[tuple[bool, bool]]:
        """Whether the best and the default answer each question right, while there is time."""
        pairs: list[tuple[bool, bool]] = []
        for n in range(questions):
            if n >= ASKED[0] and time.monotonic() - self._began > self._budget:
                break
            question, root = self._question(UNSEEN * KINDS + n)
            self._tell(f"answering question {n + 1} of {questions}")
            right = self._answered({}, question, root)
            pairs.append((self._answered(best, question, root) if best else right, right))
        return pairs

    def _answered(self, change: Settings, question: Question, root: Path) -> bool:
        for path in question.after:
            (root / path).write_text(self._folders[root].files[path])  # as it was
        agent = self._agent(change, question, root)
        try:
            answer = agent.run(question.turn.ask).answer
        except LimitReachedError:
            return False
        finally:
            let_go(agent)
        return question.right(answer, root)

    # --------------------------------------------------------------------------- helpers

    def _agent(self, change: Settings, question: Question, root: Path) -> Agent[str]:
        return Agent(
            self._engine,
            workspace=root,
            tools=make_group("edit", root) if question.after else None,
            policy="yes" if question.after else "read-only",
            max_tokens=MAX_ANSWER,
            trace=False,
            thinking=False,
            sampling=Sampling(temperature=0),
            harness={**DEFAULTS, **change},
        )

    def _question(self, number: int) -> tuple[Question, Path]:
        """A question by its number, and its folder."""
        folder, at = divmod(number, KINDS)
        root = self._folder / str(folder)
        if root not in self._folders:
            self._folders[root] = Fresh(self._seed + folder)
            self._folders[root].write(root)
        return self._folders[root].questions[at], root

    def _token_seconds(self) -> float:
        """Seconds of a pass of one token, after the last prompt."""
        with closing([*self._sessions.values()][-1].fork()) as fork:
            fork.logits_for(fork.tokens[-1:])
            began = time.perf_counter()
            fork.logits_for(fork.tokens[-1:])
            return time.perf_counter() - began

    def _tell(self, what: str) -> None:
        self._progress(what, max(0.0, self._end - time.monotonic()))


def share(session: Session, ids: Sequence[int], said: Sequence[Sequence[int]]) -> float:
    """The share that the first of some texts has, by its log-probability per token: 0 to 1.

    Per token, since whole sums would favor the shortest, that nothing is there.

    Args:
        session: of what it has read, as much stays as the prompt begins with.
        ids: of the prompt.
        said: ids of the texts that may follow it, one at least each.
    """
    session.truncate(common_prefix(ids, session.tokens))
    session.prefill(ids[len(session.tokens) :])
    first = log_probabilities(session.logits[None])[0]
    means = []
    for one in said:
        total = first[one[0]]
        if len(one) > 1:
            with closing(session.fork()) as fork:
                rows = log_probabilities(fork.logits_for(one[:-1]))
            total += rows[np.arange(len(rows)), one[1:]].sum()
        means.append(float(total) / len(one))
    return float(np.exp(means[0] - np.logaddexp.reduce(means)))


def _within(limits: tuple[int, int], wanted: float) -> int:
    return int(min(max(wanted, limits[0]), limits[1]))
