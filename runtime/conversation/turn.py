"""Drives one turn of the model, for the agent, the server and replay alike.

The session holds the prompt. `Turn.tokens` decodes the reply, holds it to what is required, reads
it as it comes and ends it; `Turn.finish` says what came of it.

    room ─► constraint ─► sampling ─► session.decode ─► reader ─► ended? ─► TurnResult
                                         └── phase, with its recipe ──────────┘

A new way to end a turn is a branch of `Turn._ended`; a new budget is a field of `Limits`, which
recipes then have by themselves; a new constraint is put around the grammar's in
`TurnRequest.constraint`, from a field of `Limits` or `Requirement`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic_core import from_json

from ...errors import ContextOverflowError, GrammarError
from ...tools.schema_tool import schema_problem
from ..engine.around import EndsLater
from ..engine.drafting.config import SpeculativeConfig
from .call_check import fits
from .plain_reader import PlainReader
from .prose import Prose
from .repetition import RepetitionStop
from .reply import Reply, ReplyReader
from .requirement import Requirement, grammar_of

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from ..engine.decoding import Constraint
    from ..engine.sampling.settings import Sampling
    from ..engine.session import Session
    from ..tokens.tokenizer import Tokenizer
    from .grammar import CallGrammar
    from .logprobs import LogprobRecorder

THINKING_END = (
    "\n\nConsidering the limited time by the user, I have to give the solution based on the "
    "thinking directly now.\n"
)
MISFIT = "That answer does not fit: {problem}. Answer again, with all that it needs."
"""Message to the model, sent once, when an answer does not parse as the declared type."""
Reason = Literal["end", "stop", "repetition", "time", "max_tokens", "context", ""]
Pieces: TypeAlias = "Sequence[tuple[str, str]]"
"""Pieces of a reply in order, each a mode (see `reply.Mode`) and a text."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the length of a reply."""

    max_tokens: int | None = None
    """Maximum tokens of the reply; None: as many as the context holds."""
    min_tokens: int = 0
    """Minimum tokens of the reply; no earlier token may end it."""
    line_seconds: float = 0.0
    """Seconds after which the next line break ends the reply; 0: no limit."""
    indent: int = 0
    """Minimum spaces before each line but the first; a line with fewer ends the reply."""
    thinking_tokens: int | None = None
    """Maximum tokens of thinking, after which it is closed; None: no limit."""
    thinking_seconds: float = 0.0
    """Maximum seconds of thinking; 0: no limit. A recipe records the tokens reached instead."""
    thinking_end: str = THINKING_END
    """Text that is forced before the closing tag when thinking is cut."""

    @property
    def recipe(self) -> dict[str, Any]:
        """Return the non-default limits as a trace records them."""
        usual, left_out = Limits(), ("max_tokens", "thinking_seconds")
        own = {
            k: v for k, v in asdict(self).items() if v != getattr(usual, k) and k not in left_out
        }
        return own if self.thinking_tokens is None else own | {"thinking_end": self.thinking_end}


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The request for one turn; see `Requirement` for the constraint on the reply."""

    sampling: Sampling
    required: Requirement | None = None
    """Constraint on the reply; None: every token is allowed, as in a completion."""
    limits: Limits = field(default_factory=Limits)
    opened: bool = False
    """Whether the prompt ends inside the model's thinking."""
    prefill: Sequence[int] = ()
    """First tokens of a reply that the caller began: the last ones of the prompt."""
    stops: Sequence[str] = ()
    """Stop texts that end the turn."""
    ends: frozenset[int] | None = None
    """Tokens that end the turn; None: those of the model."""
    endless: bool = False
    """Whether the turn continues past the model's end tokens."""
    stops_repetition: bool = False
    """Whether a repetition ends the turn; see `repetition`."""
    logprobs: int | None = None
    """Number of most likely tokens to record with each token; None: no log-probabilities."""
    sampled_probs: bool = False
    """Whether log-probabilities are those after sampling settings and grammar."""

    @property
    def recipe(self) -> dict[str, Any] | None:
        """Return the decode's constraint as a trace records it; None where there is none."""
        limits = self.limits.recipe
        if self.required is None:
            return limits or None
        more = {"opened": self.opened, "said": len(self.prefill)}
        return self.required.recipe | limits | {k: v for k, v in more.items() if v}

    @classmethod
    def read(
        cls,
        recipe: Mapping[str, Any] | None,
        contents: Mapping[str, Any],
        prompt: Sequence[int],
        **more: Any,
    ) -> TurnRequest:
        """Build the request from a recorded recipe.

        Raises:
            ReplayError: see `Requirement.read`.
        """
        given = dict(recipe or {})
        own = {one.name: given.pop(one.name) for one in fields(Limits) if one.name in given}
        opened, begun = bool(given.pop("opened", False)), int(given.pop("said", 0))
        limits = replace(more.pop("limits", Limits()), **own)
        return cls(
            limits=limits,
            required=None if recipe is None or not given else Requirement.read(given, contents),
            opened=opened,
            prefill=prompt[len(prompt) - begun :] if begun else (),
            **more,
        )

    def constraint(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> Constraint | None:
        """Build the constraint of the decode after `prompt`; None allows every token.

        Raises:
            GrammarError: no grammar can be made of it, or the prefilled reply does not fit it.
        """
        made: Constraint | None = None
        if self.required is not None:
            before = prompt[: len(prompt) - len(self.prefill)]
            grammar = grammar_of(tokenizer, self.required)
            made = grammar.constraint(thinking=self.opened, before=before)
            if self.required.names:
                from .held_names import HeldNames

                made = HeldNames(made, tokenizer, self.required)
            for token in self.prefill:
                made.advance(token)
            if self.required.prose:
                made = Prose(made, tokenizer)
        if self.limits.min_tokens:
            ends = self.ends_of(tokenizer)
            made = EndsLater(made, ends, self.limits.min_tokens, tokenizer.n_vocab)
        limits, required = self.limits, self.required
        bounded = limits.thinking_tokens is not None or limits.thinking_seconds
        # Messages with headers may think again after each thought; such templates have an effort.
        if bounded and required and required.thinking.closing and not required.form.headers:
            from .thought_budget import ThoughtBudget

            closed = required.thinking.closing in tokenizer.decode(self.prefill, special=True)
            opened = self.opened and not closed
            made = ThoughtBudget(
                made, tokenizer, required.thinking,
                tokens=limits.thinking_tokens, seconds=limits.thinking_seconds,
                sentence=limits.thinking_end, opened=opened,
            )  # fmt: skip
        return made

    def ends_of(self, tokenizer: Tokenizer) -> frozenset[int]:
        """Return the tokens that end the turn."""
        return frozenset(tokenizer.stop_ids if self.ends is None else self.ends)

    def reader(self, tokenizer: Tokenizer) -> ReplyReader | PlainReader:
        """Return a streaming parser of the reply."""
        required = self.required
        if required is None or not required.format:
            ends = self.ends_of(tokenizer)
            return PlainReader(tokenizer, self.stops, ends, self.limits.indent)
        tools, form = required.callable_tools, required.form
        reader = ReplyReader(
            tokenizer,
            form if tools else form.without_calls(),
            thinking=self.opened,
            tools=tools,
            tags=required.thinking,
            stops=() if self.prefill else self.stops,
        )
        if self.prefill:
            reader.begin_after(self.prefill, self.stops)
        return reader


@dataclass(slots=True)
class TurnResult:
    """Result of a turn: the parsed reply, and how it ended."""

    reply: Reply
    """The parsed reply: text, thinking and calls."""
    rest: Pieces
    """Pieces that were released only at the end, after the last token."""
    reason: Reason
    """Why the turn ended; empty where the caller left it early."""
    stop_text: str | None
    """The stop text that ended the turn, one of `TurnRequest.stops`."""
    ids: list[int]
    thought: Sequence[int]
    """Indices of the thinking tokens in `ids`."""
    phase: PhaseEvent | None
    """Record of the decode; None where no token was decoded."""
    fits: bool = True
    """Whether calls that were parsed from plain text fit the grammar."""
    misfit: str = ""
    """How the text violates the output schema, checked where the grammar is only partial."""
    error: ContextOverflowError | None = None
    """The error that ended the turn for lack of memory."""
    thinking_ended: int | None = None
    """Number of thinking tokens at which the budget was spent; None where it was not."""


class Turn:
    """Decode of one turn: yields tokens with their texts, then the result.

    Args:
        session: the one that holds the prompt.
        request: its constraint, limits and sampling.
        tokenizer: of the model.
        check: called between tokens; what it raises ends the turn.
        given: returns the texts that the model may copy without counting as a repetition.

    Attributes:
        reader: of the reply.
        recorder: of log-probabilities, where requested.
        count: tokens decoded so far.

    Raises:
        GrammarError: no grammar can be made from the requirement.
    """

    def __init__(
        self,
        session: Session,
        request: TurnRequest,
        tokenizer: Tokenizer,
        check: Callable[[], object] | None = None,
        given: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self.request, self.count = request, 0
        self._session, self._tokenizer, self._check = session, tokenizer, check
        self._before, self._phase_before = len(session.tokens), session.last_phase
        self._ends = request.ends_of(tokenizer)
        self.reader = request.reader(tokenizer)
        self._constraint = constraint = request.constraint(tokenizer, session.tokens)
        sampling = request.sampling
        if request.endless:
            never = dict.fromkeys(tokenizer.stop_ids, -math.inf)
            sampling = replace(sampling, logit_bias={**(sampling.logit_bias or {}), **never})
        self.recorder: LogprobRecorder | None = None
        if request.logprobs is not None:
            from .logprobs import LogprobRecorder

            after = sampling if request.sampled_probs else None
            self.recorder = LogprobRecorder(session, constraint, request.logprobs, after)
            constraint = self.recorder
            session.phases.drafting.settings = SpeculativeConfig(jump_forward=False, draft_tokens=0)
        self._repetition: RepetitionStop | None = None
        if request.stops_repetition:
            self._repetition = RepetitionStop(tokenizer.decode, given or list)
        self._room = session.context - self._before
        self._left = self._room if request.limits.max_tokens is None else request.limits.max_tokens
        self._reason: Reason = ""
        self._error: ContextOverflowError | None = None
        self._result: TurnResult | None = None
        self._began = time.perf_counter()
        self._decode = session.decode(
            max_tokens=min(self._left, self._room),
            stop=self._ends,
            constraint=constraint,
            sampling=replace(sampling, stop=None),  # the reader looks for those
        )

    @property
    def seconds(self) -> float:
        """Return the seconds since the turn began."""
        return time.perf_counter() - self._began

    def tokens(self) -> Iterator[tuple[int, Pieces]]:
        """Decode the reply: yield each token and the texts that it completes.

        Raises:
            ContextOverflowError: of memory, before the first token.
            GrammarError: a call is malformed in spite of the grammar.
        """
        push, check = self.reader.push, self._check
        try:
            for token in self._decode:
                if check is not None:
                    check()
                self.count += 1
                yield token, push(token)
                if reason := self._ended(token):
                    self._reason = reason
                    break
            else:
                self._reason = "context" if self._room <= self._left else "max_tokens"
        except ContextOverflowError as error:  # of memory: what there is so far is a reply
            if not self.count:
                raise
            self._reason, self._error = "context", error
        if broken := self.finish().reply.broken:
            raise GrammarError(f"a malformed call got past the grammar: {broken[0]}")

    def _ended(self, token: int) -> Reason:
        """Return why the turn ends after a token; empty where it continues."""
        if self.reader.stopped:
            return "stop"
        if token in self._ends:
            return "end"
        if self._repetition is not None and self._repetition.push(token):
            return "repetition"
        late = 0 < self.request.limits.line_seconds < self.seconds
        return "time" if late and b"\n" in self._tokenizer.token_bytes(token) else ""

    def finish(self) -> TurnResult:
        """Return the result, also of a turn left early; decoded tokens stay in the session."""
        if self._result is not None:
            return self._result
        if isinstance(self._decode, Generator):
            self._decode.close()  # a decode that is left early gives its phase now
        reader, session = self.reader, self._session
        reply = reader.finish()
        if self._repetition is not None and self._repetition.length:
            reply.repeated = self._repetition.length
            if reply.cut_call is not None:
                reply.calls = []  # what it wrote before that is not to be run alone
        phase = session.last_phase
        self._result = TurnResult(
            reply,
            reader.rest,
            self._reason,
            reader.stop_text,
            session.tokens[self._before :],
            reader.thought,
            None if phase is self._phase_before else phase,
            error=self._error,
            thinking_ended=getattr(self._constraint, "ended", None),
        )
        self._judge(self._result)
        if self._result.phase is not None:
            self._record(self._result.phase, self._result)
        return self._result

    def _judge(self, result: TurnResult) -> None:
        """Check the reply against what its grammar could not enforce."""
        required, reply = self.request.required, result.reply
        if required is None or not required.format:
            return
        if reply.repaired:
            several = required.one_call or required.form.single
            alone = len(reply.calls) == 1 or not several
            calls, tools = reply.calls, required.callable_tools
            sound = alone and not any(one.problem for one in calls)
            result.fits = sound and all(fits(one, tools, self._tokenizer) for one in calls)
        whole = result.reason == "end" and not self.request.prefill
        text = whole and (not reply.calls or not result.fits)
        if text and isinstance(required.output, Mapping) and checks_later(self._grammar):
            rest = "".join(piece for mode, piece in result.rest if mode == "answer")
            spoken = reply.answer + rest if reply.repaired else reply.answer or rest
            try:
                result.misfit = schema_problem(required.output, from_json(spoken))
            except ValueError as error:  # nested too deeply
                result.misfit = str(error)

    def _record(self, phase: PhaseEvent, result: TurnResult) -> None:
        """Record the constraint and the outcome in the decode's phase."""
        request, reply = self.request, result.reply
        if request.required is not None:
            phase.constraint = self._grammar.name
        limits, ended = request.limits, result.thinking_ended
        if limits.thinking_seconds and ended is not None:  # a replay takes other times
            request = replace(request, limits=replace(limits, thinking_tokens=ended))
        phase.recipe = request.recipe
        phase.finish_reason = "repetition" if reply.repeated else ""
        called = reply.calls or reply.cut_call is not None
        phase.purpose = "tool_call" if called else "answer"

    @property
    def _grammar(self) -> CallGrammar:
        assert self.request.required is not None, "it is held to something"
        return grammar_of(self._tokenizer, self.request.required)


def checks_later(grammar: CallGrammar) -> bool:
    """Return whether a reply needs a schema check afterwards, as its grammar is partial.

    The check needs ``jsonschema``.
    """
    return bool(grammar.unheld) and find_spec("jsonschema") is not None
