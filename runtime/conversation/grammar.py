"""Constrained decoding: free text, or a tool call that is always well-formed.

The model writes freely until it opens a tool call. From there on a matcher of the `llguidance`
library allows only what continues a call of a known tool with arguments of its schema, then what
closes it, then another call or the end of the turn. Where a single token opens calls the matcher
waits for that; where letters do, it reads along from the beginning of the turn.

Free text costs nothing but one fixed mask: the tokens that are not the model's to write (control
tokens other than those that end its turn, the tags around tool results) are never allowed.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from ... import interrupts
from ...errors import GrammarError
from ..gguf.types import TokenType
from ..tokens.foreign import translated
from . import answer_forms
from .answer_forms import Evidence
from .call_dress import DressWatch
from .formats import FORMATS
from .formats.schemas import relaxed, strict
from .formats.toolcalls import ToolFormat, json_rule, quoted
from .gbnf import lark_of
from .matcher_tables import first_line, fresh_matcher, matcher_tables, refusal
from .reasoning_tags import Thinking, thinking_of

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from ..tokens.tokenizer import Tokenizer
    from .dressed_call import Head

Mask: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint32]]"

CallChoice = Literal["auto", "required", "none"]

_BACKGROUND = 20_000  # tokens from which building the matcher's tables takes long enough to notice
_QUOTING_FUEL = 20_000_000  # steps a token; 200,000, as is usual, do for words of 400 letters
_TEXT = r"/(?s:.*)/"


class Constraint(Protocol):
    """Masks the logits of a decode and follows the sampled tokens."""

    @property
    def done(self) -> bool:
        """Return whether the turn has ended and no token may follow."""
        ...

    def mask(self) -> Mask | None:
        """Return the bitmask of allowed tokens: bit t % 32 of word t // 32; None allows all.

        Shape ``[ceil(n_vocab / 32)]``. Valid until the next call of this or of `advance`.
        """
        ...

    def advance(self, token: int) -> None:
        """Advance the state by the sampled token.

        Raises:
            GrammarError: the mask did not allow it.
        """
        ...


class CallGrammar:
    """Compiled grammar of the replies of one agent: calls, answers or free text.

    Args:
        tokenizer: of the model.
        tools: OpenAI-style schemas; without any, only free text is allowed.
        form: how calls are written, or the name of a known format.
        output: JSON schema or GBNF grammar that an answer must fit, in place of free text.
        thinking: the tags around the model's thinking; `NO_THINKING` where it may not think.
        calls: whether a turn may be calls (``auto``), must be (``required``) or must not.
        forms: of answers that quote what was given (`answer_forms`); an `output` goes before them.
        dresses: whether calls that are written as text are held to their tools (`call_dress`).

    Raises:
        GrammarError: a schema cannot be made into a grammar; names the tool.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        tools: Sequence[Mapping[str, Any]] = (),
        form: ToolFormat | str = "hermes",
        output: Mapping[str, Any] | str | None = None,
        thinking: Thinking | None = None,
        calls: CallChoice = "auto",
        forms: str | None = None,
        dresses: bool = False,
    ) -> None:
        self.form = FORMATS[form] if isinstance(form, str) else form
        self.tokenizer = tokenizer
        self.notes: list[str] = []
        """Notes on schema parts that the grammar does not enforce."""
        thinking = thinking or thinking_of("", tokenizer)
        self._tools = list(tools) if calls != "none" else []
        self._choice: CallChoice = calls if tools else "auto"
        self._output = self._held = output
        self.unheld: list[str] = []
        """The note on parts of the output schema that the grammar does not enforce."""
        self._tags = tag_ids(tokenizer, (*self.form.tags, *thinking.tags))
        alone = output is None and calls == "auto" and self.form.headers is None
        self.forms = forms if alone and self.form.opening in self._tags else None
        """The forms of answers that the grammar enforces; None: no forms."""
        self._dresses = dresses
        self._lenient: list[str] = []
        self._opening_ids = frozenset(
            self._tags[o.text] for o in self.form.openings if o.text in self._tags and not o.in_call
        )
        self._letters = [o for o in self.form.openings if o.text not in self._tags or o.in_call]
        """Call openings without a token, which the matcher looks for in the text."""
        self.opens_thinking = self._tags.get(thinking.opening)
        self.closes_thinking = self._tags.get(thinking.closing)
        self.thinking = thinking
        self.free = self._free_mask()
        self._prototypes: dict[str, LLMatcher] = {}
        self._failure: GrammarError | None = None
        self._thread: threading.Thread | None = None
        if self._tools or self.watches():
            self._prepare()

    @property
    def name(self) -> str:
        """Return the name of the grammar in traces."""
        return self.form.name if self._tools or self.form.headers else "text"

    def constraint(self, *, thinking: bool = False, before: Sequence[int] = ()) -> TurnConstraint:
        """Return a fresh constraint for one turn.

        Args:
            thinking: whether the template has opened the model's thinking already.
            before: the tokens of the conversation, which an answer of a fixed form may quote.

        Raises:
            GrammarError: a schema cannot be made into a grammar.
        """
        return TurnConstraint(self, thinking=thinking, before=before)

    def watches(self) -> bool:
        """Return whether a matcher runs from the turn's first token on.

        It does for answers of a schema, for headers and for calls that begin with letters.
        """
        letters = bool((self._tools or self._choice == "none") and self._letters)
        held = self._output is not None or self.forms or self._choice == "required"
        return bool(held) or self.form.headers is not None or letters

    def opens(self, token: int) -> bool:
        """Return whether a token opens calls."""
        return bool(self._tools) and token in self._opening_ids

    def dress_watch(self) -> DressWatch | None:
        """Return a detector of calls in free text; None where text is not free."""
        free = self._dresses and self._tools and not self.watches()
        return DressWatch(self._tools) if free else None

    def dressed(self, watch: DressWatch) -> LLMatcher | None:
        """Return a matcher for the call begun in free text, or None where there is none."""
        if (begun := watch.begun()) is None:
            return None
        from .dress_grammar import dress_matcher  # most models never write such a call

        self.check()
        named = (tool for tool in self._tools if tool["function"]["name"] == begun[0].name)
        return next((dress_matcher(self.tokenizer, tool, *begun) for tool in named), None)

    def check(self) -> None:
        """Wait until the grammar is compiled.

        Raises:
            GrammarError: it cannot be compiled.
        """
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def matcher(self, part: str = "calls", before: Sequence[int] = ()) -> LLMatcher:
        """Return a fresh matcher: of ``calls`` after their opening, or of a ``turn``."""
        self.check()
        assert self._prototypes, "a grammar of free text has no matcher"
        if self.forms and part == "turn":
            evidence = answer_forms.read_evidence(self.tokenizer, before, self.form, self._tags)
            return self._checked(self._matcher(part, self._lenient, evidence))
        return self._prototypes[part].deep_copy()

    def _prepare(self) -> None:
        """Compile the matchers; in a thread, during the first prefill, for a large vocabulary."""
        if self.tokenizer.n_vocab < _BACKGROUND:
            self._prototypes = self._compile()
            return
        self._thread = threading.Thread(target=self._compile_quietly, name="grammar", daemon=True)
        interrupts.start(self._thread)

    def _compile_quietly(self) -> None:
        try:
            self._prototypes = self._compile()
        except GrammarError as error:
            self._failure = error

    def _compile(self) -> dict[str, LLMatcher]:
        matcher_tables(self.tokenizer)  # what is wrong with the vocabulary is no tool's fault
        try:
            with translated(refusal("no grammar can be made from the tools")):
                return self._compile_parts()
        except GrammarError as error:
            functions = [tool["function"] for tool in self._tools]
            error.tools = {one["name"]: why for one in functions if (why := self._problem(one))}
            error.args = (*error.tools.values(), *error.args)[:1]
            raise

    def _problem(self, function: Mapping[str, Any]) -> str:
        """Return why a tool's schema has no grammar; empty where it has one."""
        name, schema = function["name"], function.get("parameters") or {}
        given, where, problem = schema.get("properties"), "schema", self._refusal(function)
        if not problem or problem.startswith(f"tool {name}: "):
            return problem
        for key, value in given.items() if isinstance(given, Mapping) else ():
            alone, none = ({**schema, "properties": p, "required": []} for p in ({key: value}, {}))
            own = self._refusal({**function, "parameters": alone})
            if own and not self._refusal({**function, "parameters": none}):
                problem, where = own, f"argument {key!r}"
                break
        return f"tool {name}: no grammar can be made from its {where}: {problem}; simplify it"

    def _refusal(self, function: Mapping[str, Any]) -> str:
        alone = copy.copy(self)
        alone._output, alone._choice, alone.forms = None, "required", None
        try:
            with translated(refusal("it is malformed")):
                list(self.form.notes([{"function": function}]))
                for lenient in ((), [function["name"]]):
                    lark = alone._lark([{"function": function}], "turn", lenient)
                return first_line(fresh_matcher(self.tokenizer, lark).get_error())
        except GrammarError as error:
            return str(error)

    def _compile_parts(self) -> dict[str, LLMatcher]:
        tables = matcher_tables(self.tokenizer)
        lenient: list[str] = []
        made: dict[str, LLMatcher] = {}
        parts = ["calls"] * bool(self._tools and self._opening_ids) + ["turn"] * self.watches()
        for part in parts:
            matcher = self._matcher(part, lenient)
            if matcher.is_error():
                self._check_output(tables)
                lenient = lenient or self._not_expressible(tables, part)
                matcher = self._matcher(part, lenient)
            made[part] = self._checked(matcher)
            if self._output is not None and part == "turn":
                self._check_first(matcher.deep_copy())
        self._lenient = lenient
        self.notes += self.form.notes(self._tools, lenient)
        return made

    def _matcher(
        self, part: str, lenient: Container[str], evidence: Evidence | None = None
    ) -> LLMatcher:
        lark = self._lark(self._tools, part, lenient, evidence)
        if evidence is None:
            return fresh_matcher(self.tokenizer, lark)
        from llguidance import LLMatcher, LLParserLimits  # of this turn alone

        # A quotation's word may be a line of two thousand letters.
        limits = LLParserLimits(step_lexer_fuel=_QUOTING_FUEL)
        return LLMatcher(matcher_tables(self.tokenizer), lark, log_level=0, limits=limits)

    @staticmethod
    def _checked(matcher: LLMatcher) -> LLMatcher:
        if matcher.is_error():
            reason = first_line(matcher.get_error())
            raise GrammarError(f"no grammar can be made from the tools together: {reason}")
        return matcher

    def _check_first(self, matcher: LLMatcher) -> None:
        """Check that the grammar allows a first token, unlike a left-recursive `root ::= root`."""
        matcher.consume_tokens(matcher.compute_ff_tokens())
        matcher.compute_bitmask()
        if matcher.is_error():
            raise self._bad_output(matcher.get_error())

    def _bad_output(self, problem: str) -> GrammarError:
        reason = first_line(problem)
        if isinstance(self._output, str):
            return GrammarError(f"the GBNF grammar cannot be used: {reason}")
        return GrammarError(
            f"no grammar can be made from the schema of the answer: {reason}; simplify output_type"
        )

    def _check_output(self, tables: LLTokenizer) -> None:
        """Check that the answer's schema or forms compile alone; relax a schema that does not."""
        from llguidance import LLMatcher

        if self.forms:
            alone = f"start: answer\n{answer_forms.rules(self.forms, Evidence())}"
            if problem := LLMatcher.validate_grammar(alone, tables):
                raise GrammarError(
                    f"the model's file declares forms of its answers ({answer_forms.KEY}) that "
                    f"cannot be used: {first_line(problem)}; Agent(answer_forms=False) does "
                    "without them"
                )
        if self._output is None:
            return
        if not (problem := LLMatcher.validate_grammar(self._lark([], "turn"), tables)):
            return
        if isinstance(self._output, Mapping) and self._held is self._output:

            def refused(schema: Mapping[str, Any]) -> str:
                return LLMatcher.validate_grammar(f"start: {json_rule(schema)}", tables)

            self._held, left = relaxed(
                self._output, lambda one: not refused({"type": "string", "pattern": one})
            )
            if more := refused(strict(self._held)):
                left.append(first_line(more).rpartition(": ")[2].strip("[]"))
            self.unheld += [
                f"no grammar has a part of the answer's schema ({'; '.join(left)}): a chat checks "
                "it later, a JSON schema by jsonschema (pip install 'triplepoint[eval]')"
            ][: len(left)]
            self.notes += self.unheld
            problem = LLMatcher.validate_grammar(self._lark([], "turn"), tables)
        if problem:
            raise self._bad_output(problem)

    def _not_expressible(self, tables: LLTokenizer, part: str) -> list[str]:
        """Return the names of the tools whose schemas exceed what a grammar can express."""
        from llguidance import LLMatcher

        names: list[str] = []
        for tool in self._tools:
            name = tool["function"]["name"]
            problem = LLMatcher.validate_grammar(self._lark([tool], part), tables)
            if not problem:
                continue
            if LLMatcher.validate_grammar(self._lark([tool], part, [name]), tables):
                raise GrammarError(f"tool {name}: {first_line(problem)}")
            names.append(name)
            self.notes.append(
                f"tool {name}: a part of its schema is checked only once the call is written: "
                f"{first_line(problem)}"
            )
        return names

    def _lark(
        self,
        tools: Sequence[Mapping[str, Any]],
        part: str,
        lenient: Container[str] = (),
        evidence: Evidence | None = None,
    ) -> str:
        calls = self.form.grammar(tools, self._tag, lenient) if tools else ""
        if part == "calls":
            return f"start: calls\n{calls}"
        forms = answer_forms.rules(self.forms, evidence or Evidence()) if self.forms else ""
        return f"{self._turn(bool(tools))}\n{calls}\n{forms}"

    def _turn(self, calls: bool) -> str:
        if self.form.headers is not None:
            return self._headed(calls)
        if self._output is None and not self.forms and self._choice != "required":
            return self._watch()
        return self._answer(self._held, calls)

    def _answer(self, output: Mapping[str, Any] | str | None, calls: bool) -> str:
        """Return the rules of a turn that is a constrained answer or calls."""
        must_call = calls and self._choice == "required"
        choices = [] if must_call else ["answer"]
        numbers = iter(range(len(self.form.openings)))
        for opening in self.form.openings if calls else ():
            tagged = f"{self._tag(opening.text)} calls"
            choices.append(f"whole_{next(numbers)}" if opening.in_call else tagged)
        blank = r"BLANK: /\n{1,2}/"
        if not self.thinking.opening:  # a completion, exactly as requested
            rules = ["start: answer"]
        else:
            rules = [f"start: BLANK? ({' | '.join(choices)})", blank]
        answer = [] if must_call or output is None else [self._answer_rule(output)]
        return "\n".join([*rules, *(f"answer: {rule}" for rule in answer)])

    def _headed(self, calls: bool) -> str:
        """Return the rules of a turn made of messages with headers."""
        must_call = calls and self._choice == "required"
        turn = self.form.turn(self._tag, calls=calls, answer=None if must_call else "answer")
        answer = "TEXT?" if self._held is None else self._answer_rule(self._held)
        return "\n".join([turn, f"answer: {answer}", f"TEXT: {_TEXT}"])

    def _answer_rule(self, output: Mapping[str, Any] | str) -> str:
        """Return the grammar expression of an answer: a JSON schema, or a GBNF grammar."""
        if isinstance(output, str):
            return f"%lark {{\n{lark_of(output)}\n}}"
        return json_rule(strict(output), lenient=output is not self._output)

    def _watch(self) -> str:
        """Return the rules of a free turn in which letters may open a call.

        Where the tags of thinking are letters too, the turn may start with a thought.
        """
        thought = ""
        if self.closes_thinking is None:
            tags = [re.escape(tag).replace("/", r"\/") for tag in self.thinking.tags[:2]]
            thought = rf"(\s*{'(?s:.*)'.join(tags)})?"
        heads = {
            "anywhere": "(?s:.*)",
            "line": rf"({thought}\s*|(?s:.*)\n[ \t]*)",
            "turn": rf"{thought}\s*",
        }
        choices, opened, none_of = ["TEXT"], [], []
        plain = [opening for opening in self.form.openings if opening.in_call]
        for i, opening in enumerate(self._letters):
            rest = f"kept_{plain.index(opening)}" if opening.in_call else "calls"
            choices += [f"opened_{i} {rest}"] * bool(self._tools)
            head = f"/{heads[opening.where]}/"
            opened += [f"opened_{i}[lazy]: {head} {quoted(opening.text)}"] * bool(self._tools)
            none_of.append(f"~({head} {quoted(opening.text)} {_TEXT})")
        # A token that opens calls ends the text, which no letters say.
        opening_ids = sorted(self._opening_ids) if self._tools else ()
        choices += [f"TEXT? <[{token}]> calls" for token in opening_ids]
        text = f"TEXT: {' & '.join([_TEXT, *none_of])}"
        return "\n".join([f"start: {' | '.join(choices)}", *opened, text])

    def _tag(self, text: str) -> str:
        """Return the grammar expression of a tag: its token where it has one, else its letters."""
        token = self._tags.get(text)
        return json.dumps(text) if token is None else f"<[{token}]>"

    def _free_mask(self) -> Mask | None:
        """Return the mask of free text; None where it allows every token."""
        tokenizer = self.tokenizer
        vocabulary = tokenizer.vocabulary
        refused = {*vocabulary.hidden, *vocabulary.ids_of(TokenType.UNUSED)} - tokenizer.stop_ids
        refused |= set(self._tags.values())
        refused -= {self._tags[tag] for tag in self.thinking.tags if tag in self._tags}
        if self._tools:
            refused -= self._opening_ids
        if not refused:
            return None
        allowed = np.zeros(-(-tokenizer.n_vocab // 32) * 32, np.uint8)
        allowed[: tokenizer.n_vocab] = 1
        allowed[list(refused)] = 0
        return np.packbits(allowed, bitorder="little").view(np.uint32)


class TurnConstraint:
    """Constraint on one reply of the model: text, thinking and calls (see `Constraint`).

    thinking (free) ─► text: free, or watched by a matcher of the turn ─► call: a matcher of calls
                              └─► call in another dress: a matcher of the rest of it ─► text
    """

    def __init__(
        self, grammar: CallGrammar, *, thinking: bool = False, before: Sequence[int] = ()
    ) -> None:
        self._grammar, self._before = grammar, before
        self._stops = grammar.tokenizer.stop_ids
        self._words = np.empty(-(-grammar.tokenizer.n_vocab // 32), np.uint32)
        self._matcher: LLMatcher | None = None
        self._thinking = thinking and grammar.closes_thinking is not None
        self._fresh = True
        """Whether no token was generated yet, so that thinking may begin."""
        self.done = self._calling = False
        self._ahead: list[int] | None = None
        """Tokens that the matcher forces next; None: not computed yet."""
        self._watch, self._stream = grammar.dress_watch(), grammar.tokenizer.stream()
        self._dressed = False
        """Whether the matcher constrains a call written as plain text (`dress_grammar`)."""
        self._tried = False
        """Whether a matcher was already requested for the arguments being written."""
        if grammar.watches() and not self._thinking:
            self._matcher = grammar.matcher("turn", before)

    @property
    def in_call(self) -> bool:
        """Return whether a matcher constrains every further token."""
        return self._matcher is not None

    @property
    def calling(self) -> bool:
        """Return whether a call is being written, where its opening is a token."""
        return self._calling or self._dressed

    def begun(self) -> tuple[Head, str] | None:
        """Return the head and partial arguments of the call being written, or None."""
        return None if self._watch is None else self._watch.begun()

    def mask(self) -> Mask | None:
        """Return the bitmask of the allowed next tokens (see `Constraint.mask`)."""
        if self._matcher is None:
            return self._grammar.free
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        self._check("nothing can follow in")
        begin = self._grammar.opens_thinking
        if self._fresh and begin is not None and self._grammar.watches():
            self._words[begin // 32] |= np.uint32(1 << begin % 32)
        return self._words

    def forced(self) -> int | None:
        """Return the next token where only one is allowed, else None.

        Forced letters are split as the tokenizer splits them, the only way that `mask` allows.
        """
        if self._matcher is None:
            return None
        grammar = self._grammar
        if self._fresh and grammar.opens_thinking is not None and grammar.watches():
            return None
        if self._ahead is None:  # the matcher cuts all forced letters into tokens, each time
            self._ahead = self._matcher.compute_ff_tokens()
        return self._ahead[0] if self._ahead else None

    def allows(self, tokens: Sequence[int]) -> int:
        """Return the length of the longest allowed prefix of `tokens`; the state is unchanged."""
        if self._matcher is not None:
            return self._matcher.validate_tokens(list(tokens))
        free, watch = self._grammar.free, self._watch
        watch = None if watch is None or watch.off else watch.copy()
        for n, token in enumerate(tokens):
            refused = free is not None and not free[token // 32] >> np.uint32(token % 32) & 1
            if refused:
                return n
            if self._grammar.opens(token) or token == self._grammar.closes_thinking:
                return n + 1  # what follows is another matter
            if watch is not None:
                watch.push(self._grammar.tokenizer.decode([token]))
                if watch.begun() is not None:
                    return n + 1
        return len(tokens)

    def advance(self, token: int) -> None:
        """Advance the state by the sampled token (see `Constraint.advance`)."""
        grammar = self._grammar
        # The last of them is forced too, and more may be behind it: then it is looked for anew.
        known = self._ahead is not None and self._ahead[:1] == [token]
        self._ahead = (self._ahead or [])[1:] or None if known else None
        if self._thinking:
            if token == grammar.closes_thinking:
                self._thinking = False
                watched = grammar.watches()
                self._matcher = grammar.matcher("turn", self._before) if watched else None
            elif grammar.opens(token):
                self._thinking = False
                self._matcher = grammar.matcher("calls")
        elif self._fresh and self._matcher is not None and token == grammar.opens_thinking:
            self._thinking, self._matcher = True, None
        elif self._matcher is not None:
            self._matcher.consume_token(token)
            self._check(f"token {token} breaks")
        elif grammar.opens(token):
            self._matcher = grammar.matcher("calls")
        if self._watch is not None and not self._watch.off and not self._thinking:
            self._see(token, self._watch)
        self._fresh = False
        self._calling = self._calling or (grammar.opens(token) and not self._thinking)
        self.done = self.done or token in self._stops

    def _see(self, token: int, watch: DressWatch) -> None:
        """Feed a token to the detector of calls in free text; attach or detach its matcher."""
        grammar = self._grammar
        if token in self._stops or token == grammar.closes_thinking:
            return
        if grammar.opens(token) or (token == grammar.opens_thinking and not watch.fresh):
            watch.let_go()
            return
        if token == grammar.opens_thinking:
            self._thinking = grammar.closes_thinking is not None
            return
        watch.push(self._stream.push(token))
        if self._dressed:
            assert self._matcher is not None
            if self._matcher.is_accepting():
                self._matcher, self._ahead, self._dressed = None, None, False
        elif watch.begun() is not None and not self._tried:
            self._matcher = grammar.dressed(watch)
            self._dressed = self._matcher is not None
        self._tried = watch.begun() is not None

    def _check(self, what: str) -> None:
        assert self._matcher is not None
        if not self._matcher.is_error():
            return
        forms = self._grammar.forms and not self._calling
        what = f"{what} the grammar of {'the answer' if forms else 'tool calls'}"
        advice = "; Agent(answer_forms=False) does without it" if forms else ""
        raise GrammarError(f"{what}: {first_line(self._matcher.get_error())}{advice}")


def tag_ids(tokenizer: Tokenizer, tags: Sequence[str]) -> dict[str, int]:
    """Return the token id of each tag that is a single token."""
    ids = {tag: tokenizer.encode(tag, special=True) for tag in tags}
    return {tag: found[0] for tag, found in ids.items() if len(found) == 1}
