"""A conversation on a local engine, token by token.

Only new tokens are fed; the `TokenLedger` makes sure of it. A run that ends early leaves messages,
ledger and session in step, so that the next one can continue.

Where the template leaves thinking out of the history, so does the conversation: the tokens of the
thinking are taken out, and what follows them is recomputed with the next message. Tokens are never
rendered anew, so nothing else changes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import ContextOverflowError, TemplateError
from ...traces.events import PhaseEvent
from ..conversation.chat import Chat, Message, Segment
from ..conversation.ledger import (
    CHANGED_SESSION,
    DROPPED_THOUGHTS,
    PrefixMismatch,
    Span,
    TokenLedger,
)
from ..conversation.reasoning_spans import Mark, Thoughts
from ..conversation.reasoning_tags import mentions_thinking
from ..conversation.reply import Reply
from ..conversation.requirement import Requirement, grammar_of
from ..conversation.turn import Limits, Turn, TurnRequest, TurnResult
from ..engine.sampling.settings import Sampling
from .compaction import (
    compacted,
    dropped_text,
    files_in_hand,
    moved,
    what_fills,
    with_notes,
)
from .config import engine_notes
from .conversation import Conversation
from .events import AgentEvent, Notice, PhaseFinished, delta_of
from .history import History
from .prefix_reuse import common_prefix, count_reuse, resume_points
from .prompt import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engine.engine import Engine
    from .config import AgentConfig
    from .run_context import RunContext

ANSWER_ROOM = 256  # tokens that a compaction leaves free for the answer


class LocalConversation(Conversation[Mark]):
    """A `Conversation` on a local engine.

    Attributes:
        chat: the chat format of the model.
        required, grammar: the requirement on replies, and its grammar.
        left_out: notes on tools without a grammar.
        session, ledger: the tokens in the engine, and their origins.

    Raises:
        TemplateError: the model's chat template cannot be used.
        GrammarError: no grammar can be made from a tool's schema.
        SettingError: the context is larger than the engine's, or a logit bias names no token.
    """

    def __init__(
        self,
        engine: Engine,
        config: AgentConfig,
        tools: Sequence[Mapping[str, Any]],
        chat_template: str | None = None,
        *,
        profile: bool = False,
    ) -> None:
        super().__init__()
        self.engine = engine
        self.config = config
        options = dict(config.options)
        self.chat = Chat(engine.tokenizer, tools=tools, template=chat_template, options=options)
        self.required = Requirement(
            self.chat.form.name,
            tools,
            output=config.output,
            thinking=self.chat.thinking,
            answer_forms=config.answer_forms and bool(engine.tokenizer.answer_forms),
            dresses=engine.tokenizer.answer_forms is None,  # else it was trained on its own format
        )
        self.grammar = grammar_of(engine.tokenizer, self.required)
        self.left_out: list[str] = []
        self.session = engine.session(context=config.context)
        sequence = self.session.sequence
        sequence.shares, sequence.profile = True, profile
        self.session.phases.warmup()
        self.ledger = TokenLedger()
        self.sampling, self._maker = self._sampling(config.sampling or Sampling())
        self.sampling.check(engine.tokenizer.n_vocab)
        self._stops = self.sampling.filled().stop
        self._opens_thinking = False
        self._missing_room = 0  # tokens of room that were missing, when some were
        self._thoughts = Thoughts(self.ledger)
        self._why = CHANGED_SESSION

    def _sampling(self, given: Sampling) -> tuple[Sampling, list[str]]:
        """Return the effective sampling settings, and a note if they are the makers' advice.

        The advice applies to a thinking model that would decode greedily against it because no
        temperature is set.
        """
        found, engine = given.over(self.engine.sampling), self.engine
        off = self.config.options.get("enable_thinking") is False
        if found.temperature is None and not off and mentions_thinking(self.chat.source):
            from ..hub.makers import maker_sampling

            advice = maker_sampling(engine.model.name, engine.model.architecture)
            if advice is not None and advice.never_greedy:
                text = advice.text(thinks=True)
                note = f"sampling settings that the model's makers recommend: {text}"
                return found.over(Sampling(**advice.values(thinks=True))), [note]
        return found, []

    @property
    def notes(self) -> list[str]:
        own = [*self.chat.notes, *self.grammar.notes, *self.left_out, *self._maker]
        return own + engine_notes(self.config, self.engine)

    @property
    def context(self) -> int:
        return self.session.context

    def count(self, text: str) -> int:
        """Count the tokens of a text encoded by itself."""
        return len(self.engine.tokenizer.encode(text))

    def room(self) -> int:
        return self.session.context - len(self.ledger)

    def stop(self) -> None:
        self.session.stop()

    def position(self) -> Mark:
        return self._thoughts.mark()

    def rewind(self, position: Mark) -> None:
        at = self.current(position).tokens
        self.ledger.truncate(at)
        if len(self.session.tokens) > at:
            self.session.truncate(at)

    def current(self, mark: Mark) -> Mark:
        """Return the mark, adjusted to thinking removed since it was made."""
        return self._thoughts.current(mark)

    def fork_from(self, other: Conversation[Mark]) -> PhaseEvent | None:
        """Share the other's tokens without recomputing (see `Conversation.fork_from`)."""
        assert isinstance(other, LocalConversation)
        began = time.perf_counter()
        super().fork_from(other)
        if not len(other.ledger):  # the first question finds what `prefill_system` has read
            self.session = other.session.fork()
            self.session.phases.warmup()
            return None
        changed = other.ledger.first_difference(other.session.tokens)
        self.session = other.session.fork(None if changed is None else changed.position)
        self.session.phases.warmup()
        self.ledger.ids, self.ledger.spans = list(other.ledger.ids), list(other.ledger.spans)
        self._thoughts.cuts = list(other._thoughts.cuts)
        return self.session.phases.metrics.adopted("fork", time.perf_counter() - began)

    def prefill_system(self) -> int:
        """Prefill the common prefix of all conversations (see `Agent.prefill_system`)."""
        if len(self.ledger) or self.session.tokens:
            return 0
        system, chat = self.config.system, self.chat
        messages = [Message("system", system)] if system else []
        segments = chat.open([*messages, Message("user", "x")])
        ids: list[int] = []
        for segment, those in chat.encode(segments, first=True):
            if segment.origin == "user":
                break
            ids += those
        if ids:
            self.session.prefill(ids)
        return len(ids)

    def history(self) -> History:
        if not len(self.ledger):
            return super().history()
        marks = [(replace(self.current(mark), cuts=0), n) for mark, n in self.checkpoints]
        return History(self.turn, self.messages, self.ledger.ids, self.ledger.spans, marks)

    def restore(self, history: History, why: str = "") -> None:
        """Restore a conversation token by token, without a prefill.

        Args:
            history: the conversation.
            why: why the session, which is set already, lacks some of its tokens; reported when
                they are recomputed.
        """
        self.load_history(history.messages, history.turn)
        self.checkpoints = list(history.marks)
        self.ledger.ids, self.ledger.spans = list(history.ids), list(history.spans)
        self._why = why or CHANGED_SESSION
        session = self.session
        if session.n_cached + 1 < len(session.tokens):
            session.truncate(session.n_cached)

    def settings(self) -> dict[str, Any]:
        return {
            "context": self.session.context,
            "sampling": self.sampling.as_dict(),
            "format": self.chat.form.name,
            "answer_forms": self.grammar.forms is not None,
            **self.session.phases.drafting.settings.as_dict(),
        }

    def compact(
        self, before: int | None = None, room: int | None = None, run: RunContext | None = None
    ) -> PhaseEvent | None:
        """Evict tool results from the context, the oldest first, and prefill the rest again.

        Only tokens after the first of them are recomputed. A note replaces each one.

        Args:
            before: results of messages from this one on stay; None: from the last question on.
            room: tokens to have free afterwards; None: evict all.
            run: its cancellation ends the prefill.

        Returns the prefill's phase with the evicted results; None when nothing was evicted.
        """
        ledger, session = self.ledger, self.session
        if before is None:
            questions = [i for i, one in enumerate(self.messages) if one.role == "user"]
            before = questions[-1] if questions else len(self.messages)
        missing = None if room is None else max(0, len(ledger) + room - session.context)
        encode, in_hand = self.engine.tokenizer.encode, files_in_hand(self.messages)
        made, dropped = compacted(ledger, encode, before, missing, in_hand)
        if not dropped:
            return None
        first = ledger.first_difference(made.ids)
        assert first is not None, "a note is not what it stands for"
        marks = [(self.current(mark), n) for mark, n in self.checkpoints]
        keep = min(first.position, len(session.tokens))  # fewer where it was not restored
        session.truncate(keep)
        self.checkpoints = [
            (replace(mark, tokens=moved(mark.tokens, ledger.spans, dropped)), n)
            for mark, n in marks
        ]
        ledger.ids, ledger.spans = made.ids, made.spans
        self.messages = with_notes(self.messages, dropped)
        check = None if run is None else run.check_stop
        phase = session.prefill(made.ids[keep:], purpose="compaction", check=check)
        phase.dropped = [one.as_dict() for one in dropped]
        return phase

    def append(self, run: RunContext, new: Sequence[Message], purpose: str) -> Iterator[AgentEvent]:
        """Prefill the new messages, and nothing else (see `Conversation.append`).

        Where enabled, a full or nearly full context is compacted first, with a notice.
        """
        room = min(ANSWER_ROOM, self.session.context // 8) if self.config.compact else 1
        try:
            yield from self._append(run, new, purpose, room)
            return
        except ContextOverflowError:
            if not self.config.compact:
                raise
        # Within a run the results so far are old too: the model has answered to them.
        phase = self.compact(len(self.messages), self._missing_room, run)
        if phase is not None:
            yield Notice(f"the context was full: {dropped_text(phase)}")
            yield PhaseFinished(self._record(run, phase, "compaction"))
        yield from self._append(run, new, purpose)

    def _append(
        self, run: RunContext, new: Sequence[Message], purpose: str, room: int = 1
    ) -> Iterator[AgentEvent]:
        session, ledger, chat = self.session, self.ledger, self.chat
        session.phases.on_progress = run.on_progress
        if run.trace.run:  # none where a recorded step is done again
            session.sequence.label = run.trace.run
        changed = ledger.first_difference(session.tokens)
        messages = [*self.messages, *new]
        noted = len(chat.notes)
        segments = chat.extend(messages, len(self.messages)) if len(ledger) else chat.open(messages)
        yield from map(Notice, chat.notes[noted:])
        shares = chat.encode(segments, first=not len(ledger))
        ended, start, before = None, None, len(ledger)
        try:
            ended = self._merge_end_of_turn(shares)
            start = self._thoughts.drop(messages, chat)
            before = len(ledger)
            for segment, ids in shares:
                number = segment.message
                tool = "" if number is None else messages[number].name
                ledger.append(ids, segment.origin, message=number, label=tool)
            if not len(ledger):
                raise TemplateError(
                    "the chat template renders the conversation to no tokens of the model's "
                    "vocabulary; get another file of the model"
                )
            self._check_room(before, room)
            for message in new:  # before the long part, so that a kill does not lose the question
                run.log_message(message.role, message.content, by=message.by)
        except BaseException:
            ledger.truncate(before)
            if start is not None:
                self._thoughts.restore()
            if ended is not None:
                ledger.append_like(*ended)
            raise
        miss = self._miss(changed, start)
        keep = before if miss is None else miss.position
        if not before:
            keep = common_prefix(ledger.ids, session.tokens)  # what `prefill_system` has read
        try:
            opens_thinking = chat.opens_thinking(segments)
            opening = self.grammar.opens_thinking if opens_thinking else None
            if len(session.tokens) > keep:
                session.truncate(keep)
            cached = session.n_cached
            borders = resume_points(ledger, opening)
            begun = any(span.origin == "user" for span in ledger.spans)
            session.sequence.opening = borders[0] if begun and not before else 0
            phase = session.prefill(
                ledger.ids[keep:], purpose=purpose, check=run.check_stop, borders=borders
            )
        except BaseException:
            # The messages were not read: as if they had never been sent.
            self.rewind(Mark(before, len(self._thoughts.cuts)))
            if ended is not None:  # the mark of the question is behind it
                ledger.append_like(*ended)
            raise
        self.messages = messages
        self._opens_thinking = opens_thinking
        reuse = count_reuse(
            run.usage,
            phase,
            ledger,
            old=before,
            reused=keep,
            cached=cached,
            miss=miss,
            recurrent=phase.recomputed_tokens > 0 and session.sequence.cache.state is not None,
        )
        if reuse.miss is not None:
            self._why = CHANGED_SESSION
            if reuse.miss.why != DROPPED_THOUGHTS:
                yield Notice(str(reuse.miss))
        yield PhaseFinished(self._record(run, phase, purpose), reuse)

    def _miss(self, changed: PrefixMismatch | None, start: int | None) -> PrefixMismatch | None:
        """Return why the session does not hold the conversation's prefix, or None.

        Args:
            changed: a mismatch from before this prefill, or None.
            start: position at which thinking was removed, or None.
        """
        if changed is not None and (start is None or changed.position < start):
            return replace(changed, why=self._why)
        if start is None:
            return None
        was = self._thoughts.cuts[-1].spans[0]
        found = self.ledger.mismatch_at(start, self.session.tokens)
        return replace(found, span=was, why=DROPPED_THOUGHTS)

    def _merge_end_of_turn(
        self, shares: Sequence[tuple[Segment, list[int]]]
    ) -> tuple[Span, list[int]] | None:
        """Strip the template's end of turn where the model already wrote one.

        If they differ, the template's stays and the model's token is removed from the ledger: it
        was sampled last, so nothing was computed from it yet. After an undo the template's may be
        in the ledger already.

        Returns the removed token with its span; None where none was removed.
        """
        ledger, tokenizer = self.ledger, self.engine.tokenizer
        ends = tokenizer.vocabulary.end_ids
        if not ledger.ids or ledger.ids[-1] not in ends:
            return None
        ids = next((ids for _, ids in shares if ids), [])
        at = next((i for i, token in enumerate(ids) if token in ends), None)
        if at is None or tokenizer.decode(ids[:at], special=True).strip():
            return None
        last, span = ledger.ids[-1], ledger.spans[-1]
        same = ids[at] == last
        if not same and last not in tokenizer.stop_ids:
            return None
        del ids[: at + same]
        if same:
            return None
        ledger.truncate(len(ledger) - 1)
        return span, [last]

    def generate(self, run: RunContext) -> Generator[AgentEvent, None, Reply]:
        """Decode one turn of the model (see `Conversation.generate`)."""
        ledger, began = self.ledger, run.began
        left, before, config = run.tokens_left(), len(ledger), self.config
        self.session.phases.drafting.sources = [
            (s.start, s.end) for s in ledger.spans if s.origin == "tool_result"
        ]
        request = TurnRequest(
            self.sampling,
            self._held(),
            Limits(left, 0, 0.0, 0, config.thinking_tokens, config.thinking_seconds or 0.0),
            opened=self._opens_thinking,
            stops=self._stops,
            stops_repetition=self.config.repetition_stop,
        )
        tokenizer = self.engine.tokenizer
        turn = Turn(self.session, request, tokenizer, run.check_stop, self._given)
        ttft = None
        try:
            for _, pieces in turn.tokens():
                if ttft is None:
                    ttft = time.perf_counter() - began
                yield from map(delta_of, pieces)
        finally:
            result = turn.finish()
            self._keep(run, before, result)
            if result.phase is not None:
                self._measure(run, result.phase, request, ttft)
        reply = result.reply
        if not reply.repaired and reply.cut_call is None:  # no call is shown as text
            yield from map(delta_of, result.rest)
        if result.phase is not None:
            yield PhaseFinished(result.phase)
        yield from map(Notice, reply.notes)
        if result.thinking_ended:
            yield Notice(f"thinking was ended after {counted(result.thinking_ended, 'token')}")
        if result.reason == "repetition":
            yield Notice(
                f"the model repeated itself for {counted(reply.repeated, 'token')}, so its reply "
                "was stopped"
            )
        elif result.reason not in ("end", "stop"):
            raise self._cut(run, result)
        return reply

    def _held(self) -> Requirement:
        """Return the requirement on the next reply, with the harness's decision applied."""
        required, decision = self.required, self.decision
        calls = decision.calls or "auto"
        if decision.tools:
            tools = [one for one in required.tools if one["function"]["name"] in decision.tools]
            required = replace(required, tools=tools or required.tools)
        if calls != "auto":
            prose = calls == "none" and required.output is None
            required = replace(required, calls=calls, prose=prose)
        if not decision.names or calls == "none":
            return required
        given = dict(decision.names)
        if calls == "required":  # none may fit, and that can be said with no name at all
            given["also"] = [*given["also"], ""]
        return replace(required, **given)

    def _given(self) -> list[str]:
        """Return the texts that the model may copy: results, questions, the system message."""
        ids = self.ledger.ids
        given = [s for s in self.ledger.spans if s.origin not in ("model", "template")]
        return [self.engine.tokenizer.decode(ids[s.start : s.end]) for s in given]

    def _keep(self, run: RunContext, before: int, result: TurnResult) -> None:
        """Add the reply to the ledger and the messages, even when it was cut."""
        tokenizer, ids, reply = self.engine.tokenizer, result.ids, result.reply
        spoken = ids[:-1] if ids and ids[-1] in tokenizer.stop_ids else ids
        headed = self.chat.form.headers is not None  # headers say nothing without their tags
        number = len(self.messages)
        self.ledger.append(ids, "model", message=number)
        opening = self.grammar.opens_thinking if self._opens_thinking else None
        self._thoughts.label(before, result.thought, number, self._opens_thinking, opening)
        reply.calls = run.identify(reply.calls)
        message = Message(
            "assistant",
            tokenizer.decode(spoken, special=headed),
            calls=tuple(reply.calls),
            text=reply.answer,
            thinking=reply.thinking,
        )
        silent = set(result.thought)
        aloud = tokenizer.decode([token for n, token in enumerate(spoken) if n not in silent])
        if headed:
            aloud = "\n".join(filter(None, (reply.answer, self.chat.form.render(reply.calls))))
        self.messages = [*self.messages, message]
        run.log_reply(reply, aloud, len(ids))

    def _measure(
        self, run: RunContext, phase: PhaseEvent, request: TurnRequest, ttft: float | None
    ) -> None:
        """Add a decode's cost to the usage, and its record to the trace."""
        if run.usage.ttft_s is None:
            run.usage.ttft_s = phase.ttft_s = ttft
        run.usage.decode_s += phase.wall_s
        if request.required is not None:
            run.log_contents(request.required.contents)
        self._record(run, phase, phase.purpose)

    def _record(self, run: RunContext, phase: PhaseEvent, purpose: str) -> PhaseEvent:
        """Write the session's last phase to the trace."""
        return run.log_phase(phase, purpose, self.session.phases.metrics.pass_events())

    def _check_room(self, before: int, room: int) -> None:
        session, ledger = self.session, self.ledger
        if len(ledger) + room > session.context:
            self._missing_room = len(ledger) - before + ANSWER_ROOM
            raise ContextOverflowError(
                f"{len(ledger) - before:,} new tokens do not fit: "
                + what_fills(ledger, session.context, before)
            )

    def _cut(self, run: RunContext, result: TurnResult) -> Exception:
        """Return the error of a turn that was cut before an answer; a cut call never runs."""
        if result.error is not None:
            return result.error
        if result.reason == "context":
            return ContextOverflowError(
                "the context filled up before the model finished: "
                + what_fills(self.ledger, self.session.context, len(self.ledger))
            )
        return run.cut_error(result.reply)
