"""How a recorded decode picked its tokens: its grammar and its sampling, made again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import ReplayError
from ...traces.events import PhaseEvent, RunStart

if TYPE_CHECKING:
    from ..conversation.grammar import CallChoice, CallGrammar
    from ..inference.decoding import Constraint
    from ..inference.engine import Engine
    from ..inference.sampling import Sampling


class Grammars:
    """The grammars of a recorded run; each is compiled once."""

    def __init__(self, engine: Engine, header: RunStart) -> None:
        self._tokenizer = engine.tokenizer
        self._tools = header.tools
        self._output = header.config.get("output")
        # A server's requests say more of their calls than an agent does.
        self._choice: CallChoice = header.config.get("tool_choice", "auto")
        self._thinks = bool(header.config.get("thinking", True))
        self._single = bool(header.config.get("single_call"))
        held = bool(header.config.get("answer_forms"))
        self._forms = engine.tokenizer.answer_forms if held else None
        # The last tokens of a server's prompt may be the first ones of the turn.
        self._said = int(header.config.get("said", 0))
        self._min_tokens, self._ends = header.config.get("min_tokens", (0, ()))
        self._compiled: dict[str, CallGrammar] = {}
        self._constraint: tuple[tuple[int, int], Constraint | None] | None = None

    def of(self, phase: PhaseEvent, before: Sequence[int]) -> Constraint | None:
        """The constraint of a decode after the tokens `before`.

        It is one for all decodes of a model turn, as in the run.

        Raises:
            ReplayError: this version has no such grammar.
        """
        if phase.constraint is None:
            return self._ending(None)
        turn = (phase.turn, phase.step)
        if self._constraint is None or self._constraint[0] != turn:
            begun = len(before) - self._said
            said = self._tokenizer.decode(list(before[max(0, begun - 4) : begun]), special=True)
            grammar = self._grammar(phase.constraint)
            opened = self._thinks and said.rstrip().endswith(grammar.thinking.opening)
            made = grammar.constraint(thinking=opened, before=before[:begun])
            for token in before[begun:]:
                made.advance(token)
            self._constraint = (turn, self._ending(made))
        return self._constraint[1]

    def _ending(self, made: Constraint | None) -> Constraint | None:
        """The same with `min_tokens` of a server's request."""
        if not self._min_tokens:
            return made
        from ..inference.around import EndsLater

        ends = {*self._tokenizer.stop_ids, *self._ends}
        return EndsLater(made, ends, self._min_tokens, self._tokenizer.n_vocab)

    def _grammar(self, name: str) -> CallGrammar:
        from ..conversation.chat import CHATML
        from ..conversation.formats import FORMATS
        from ..conversation.grammar import CallGrammar
        from ..conversation.reasoning_tags import NO_THINKING, thinking_of

        if name not in self._compiled:
            if name != "text" and name not in FORMATS:
                raise ReplayError(f"constraint differs: this version has no grammar {name!r}")
            tools = [] if name == "text" else self._tools
            form = FORMATS["hermes" if name == "text" else name]
            tokenizer = self._tokenizer
            own = tokenizer.tool_template if tools else tokenizer.chat_template
            template = own or CHATML
            thinking = thinking_of(template, self._tokenizer) if self._thinks else NO_THINKING
            self._compiled[name] = CallGrammar(
                self._tokenizer,
                tools,
                form.one_call() if self._single else form,
                self._output,
                thinking,
                self._choice,
                self._forms,
            )
        return self._compiled[name]


def sampling_of(phase: PhaseEvent) -> Sampling:
    """The recorded way to pick tokens; greedy when nothing was recorded.

    Raises:
        ReplayError: this version cannot sample like that.
    """
    from ..inference.sampling import GREEDY, Sampling

    if not phase.sampling:
        return GREEDY
    try:
        return Sampling(**phase.sampling)
    except (TypeError, ValueError) as error:
        raise ReplayError(f"sampling differs: this version cannot do it ({error})") from error
