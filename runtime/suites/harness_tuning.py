"""Tunes the harness settings for one model file: ranks them without decoding, then tries them.

Each setting is ranked: the prompt that it makes of a question is read once, and what may be said
is scored by its log-probability per token (whole sums would favor the shortest, that nothing is
there). A setting's score is the mean share of the right text among them, 0 to 1.

Then the best and the default answer fresh questions, greedily. **The rule**: the best is kept if it
has more right answers than the default on the same questions; else the default is.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import LimitReachedError
from ...tools import Workspace
from ...tools.groups import make_group
from ..agent.agent import Agent
from ..agent.harness.defaults import DEFAULTS
from ..agent.harness.tuned import Tuned
from ..agent.local_conversation import LocalConversation
from ..agent.prefix_reuse import common_prefix
from ..agent.run_metadata import versions
from ..engine.sampling.settings import Sampling
from ..evaluate.perplexity import log_probabilities
from ..evidence.gather import Gatherer
from ..replay.dry_run import next_prompt
from .attempt import let_go
from .fresh_questions import Question, fresh
from .statistics import wilson

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.session import Session

Settings = dict[str, bool | int]

CHANGES: tuple[Settings, ...] = (
    {}, {"evidence_tokens": 600}, {"evidence_tokens": 3000}, {"best_lines": 2},
    {"examples": True}, {"plain_tools": True},
)  # fmt: skip
"""The changes of the default settings that are ranked."""
RANKED, TRIED = (8, 32), (16, 56)  # questions of each part, at least and at most
RANKING = 0.45  # of the time
ANSWER = 2.0  # times as long as ranking one setting, about
MAX_ANSWER = 300  # tokens
UNSEEN = 1000  # folder from which on questions are answered


@dataclass
class Ranked:
    """A change of the settings with its probability share and prompt tokens per question."""

    change: Settings
    shares: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def score(self) -> float:
        return fmean(self.shares)


@dataclass
class Report:
    """Result of a tuning: ranked settings, trial answers, times, and the settings to save.

    Attributes:
        ranking: the settings, best first.
        pairs: by question, whether the best and the default answered right.
        predicted_s, seconds: predicted and measured time.
        tuned: the settings to save.
    """

    ranking: list[Ranked]
    pairs: list[tuple[bool, bool]]
    predicted_s: float
    seconds: float
    tuned: Tuned


class HarnessTuner:
    """Tunes the harness settings for one engine's model.

    Args:
        folder: where the questions' folders are created.
        minutes: time budget; on a slow machine the minimum of questions takes longer.
        on_start, progress: callbacks for the plan with its predicted time, and for progress.
    """

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        minutes: float = 10,
        on_start: Callable[[str], object] = str,
        progress: Callable[[str], object] = str,
    ) -> None:
        self._engine, self._folder, self._budget = engine, folder, 60 * minutes
        self._on_start, self._progress = on_start, progress
        self._sessions: dict[str, Session] = {}  # by what their prompts begin with
        self._known: dict[tuple[Any, ...], float] = {}

    def run(self) -> Report:
        """Rank the settings, try the best, and report which to save; see the module."""
        began = time.monotonic()
        ranking = [Ranked(change) for change in CHANGES]
        try:
            self._rank(ranking, 0)  # reads the tools
            each, whole = self._rank(ranking, 1)
            answer, spent = ANSWER * each, time.monotonic() - began
            ranked = _within(RANKED, 2 + (RANKING * self._budget - spent) / whole)
            left = self._budget - spent - (ranked - 2) * whole
            count = _within(TRIED, left / (2 * answer))
            predicted = spent + (ranked - 2) * whole + 2 * count * answer
            self._on_start(
                f"{len(CHANGES)} settings are ranked over {ranked} questions, then two answer "
                f"{count}: about {predicted / 60:.1f} min in all"
            )
            for n in range(2, ranked):
                self._progress(f"ranking, question {n + 1} of {ranked}")
                self._rank(ranking, n)
        finally:
            for session in self._sessions.values():
                session.close()
        ranking.sort(key=lambda one: -one.score)  # of equals the first
        best, pairs = ranking[0].change, list[tuple[bool, bool]]()
        for n in range(count):
            if n >= TRIED[0] and time.monotonic() - began > self._budget:
                break
            self._progress(f"answering, question {n + 1} of {count}")
            right = self._answered({}, n)
            pairs.append((self._answered(best, n) if best else right, right))
        return Report(ranking, pairs, predicted, time.monotonic() - began, _decided(best, pairs))

    def _rank(self, ranking: Sequence[Ranked], number: int) -> tuple[float, float]:
        """Score one question under each setting; return seconds of the first and of all."""
        began, first = time.perf_counter(), 0.0
        question, root = self._question(number)
        for one in ranking:
            agent = self._agent(one.change, question, root)
            try:
                setup, ids = agent.setup, next_prompt(agent, question.turn.ask).ids
                assert isinstance(setup.conversation, LocalConversation), "its engine is local"
                begins = f"{setup.config.system}{setup.tools.schemas()}"
                render = setup.conversation.chat.form.render
            finally:
                let_go(agent)
            texts = [text if isinstance(text, str) else render([text]) for text in question.texts]
            key = (tuple(ids), *texts)  # settings often make no difference
            if key not in self._known:
                session = self._sessions.setdefault(begins, self._engine.session())
                encoded = [self._engine.tokenizer.encode(text, special=True) for text in texts]
                self._known[key] = share(session, ids, encoded)
            one.shares.append(self._known[key])
            one.tokens.append(len(ids))
            first = first or time.perf_counter() - began
        return first, time.perf_counter() - began

    def _answered(self, change: Settings, number: int) -> bool:
        question, root = self._question(UNSEEN + number)
        agent = self._agent(change, question, root)
        try:
            return question.right(agent.run(question.turn.ask).answer, root)
        except LimitReachedError:
            return False
        finally:
            let_go(agent)

    def _question(self, number: int) -> tuple[Question, Path]:
        """Return a question by number, and its folder in its initial state."""
        folder, questions = fresh(number)
        root = self._folder / "files"
        shutil.rmtree(root, ignore_errors=True)
        folder.write(root)
        with Workspace(root) as workspace, closing(Gatherer(workspace, background=False)) as one:
            one.warm()  # else the first setting finds no index, and the others do
        return questions[number % len(questions)], root

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


def _decided(best: Settings, pairs: Sequence[tuple[bool, bool]]) -> Tuned:
    """Decide which settings to save: the best ones if they beat the default, else the default."""
    rates = [fmean(column) for column in zip(*pairs, strict=True)]
    keep = rates[0] > rates[1]
    rate, date = rates[0] if keep else rates[1], time.strftime("%Y-%m-%d", time.gmtime())
    low, high = wilson(rate, len(pairs))
    settings, own = best if keep else {}, versions().get("triplepoint", "")
    return Tuned(settings, date, own, len(pairs), rate, low, high, rates[1])


def share(session: Session, ids: Sequence[int], texts: Sequence[Sequence[int]]) -> float:
    """Return the first text's share of the per-token probabilities of some texts, 0 to 1.

    Args:
        session: its common prefix with the prompt is reused.
        ids: of the prompt.
        texts: ids of the possible continuations, at least two each.
    """
    session.truncate(common_prefix(ids, session.tokens))
    session.prefill(ids[len(session.tokens) :])
    first, means = log_probabilities(session.logits[None])[0], []
    for one in texts:
        with closing(session.fork()) as fork:
            rows = log_probabilities(fork.logits_for(one[:-1]))
        total = first[one[0]] + rows[np.arange(len(rows)), one[1:]].sum()
        means.append(float(total) / len(one))
    return float(np.exp(means[0] - np.logaddexp.reduce(means)))


def _within(limits: tuple[int, int], wanted: float) -> int:
    return int(min(max(wanted, limits[0]), limits[1]))
