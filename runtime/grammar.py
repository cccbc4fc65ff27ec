"""Constrained decoding: free text, or a tool call that cannot be malformed.

The model writes freely until it opens a tool call. From that token on a matcher of the
`llguidance` library allows only what continues a call of a known tool with arguments of its
schema, then the closing tag, then another call or the end of the turn.

Free text costs nothing but one fixed mask: the tokens that are not the model's to write (control
tokens other than those that end its turn, the tags around tool results) are never allowed.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ..errors import GrammarError
from .gguf_types import TokenType
from .toolcalls import FORMATS, JSON_STYLE, ToolFormat, strict

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from .tokenizer import Tokenizer

Mask: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint32]]"

_BACKGROUND = 20_000  # tokens from which building the matcher's tables takes long enough to notice
_TEXT = r"/(?s:.*)/"


class Constraint(Protocol):
    """What a decode asks before it samples, and tells after."""

    @property
    def done(self) -> bool:
        """Whether the turn has ended: nothing more may come."""
        ...

    def mask(self) -> Mask | None:
        """Bit t % 32 of word t // 32 is set when token t may come next; None allows every token.

        Shape ``[ceil(n_vocab / 32)]``. Valid until the next call of this or of `advance`.
        """
        ...

    def advance(self, token: int) -> None:
        """Token was sampled.

        Raises:
            GrammarError: the mask did not allow it.
        """
        ...


class CallGrammar:
    """The grammar of the turns of one agent.

    Args:
        tokenizer: of the model.
        tools: OpenAI-style schemas; without any, only free text is allowed.
        form: how calls are written, or the name of a known format.
        output: JSON schema that an answer must fit, in place of free text.

    Raises:
        GrammarError: a schema cannot be made into a grammar; names the tool.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        tools: Sequence[Mapping[str, Any]] = (),
        form: ToolFormat | str = "hermes",
        output: Mapping[str, Any] | None = None,
    ) -> None:
        self.form = FORMATS[form] if isinstance(form, str) else form
        self.tokenizer = tokenizer
        self.notes: list[str] = []
        """What the grammar could not hold the model to."""
        self._tools = list(tools)
        self._output = output
        self._tags = tag_ids(tokenizer, (self.form.opening, self.form.closing))
        self.opening_id = self._tags.get(self.form.opening)
        """Id of the token that opens a call; None when it takes several tokens."""
        self.free = self._free_mask()
        self._prototype: LLMatcher | None = None
        self._failure: GrammarError | None = None
        self._thread: threading.Thread | None = None
        if self._tools or output is not None:
            self._prepare()

    @property
    def name(self) -> str:
        """What a trace calls it."""
        return self.form.name if self._tools else "text"

    def constraint(self, *, thinking: bool = False) -> Constraint:
        """The constraint of one turn.

        Args:
            thinking: whether the template has opened the model's thinking already.

        Raises:
            GrammarError: a schema cannot be made into a grammar.
        """
        if self._output is not None:
            return OutputConstraint(self, thinking)
        if self._tools and self.opening_id is None:
            # No single token to wait for, so the matcher watches from the start.
            return TurnConstraint(self, self.matcher())
        return TurnConstraint(self, None)

    def matcher(self) -> LLMatcher:
        """A fresh matcher of calls (of a whole turn, where no single token opens a call)."""
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._prototype is not None, "a grammar of free text has no matcher"
        return self._prototype.deep_copy()

    def _prepare(self) -> None:
        """Build the matcher; beside the first prefill when the vocabulary is large."""
        if self.tokenizer.n_vocab < _BACKGROUND:
            self._prototype = self._compile()
            return
        self._thread = threading.Thread(target=self._compile_quietly, name="grammar", daemon=True)
        self._thread.start()

    def _compile_quietly(self) -> None:
        try:
            self._prototype = self._compile()
        except GrammarError as error:
            self._failure = error

    def _compile(self) -> LLMatcher:
        from llguidance import LLMatcher

        tables = matcher_tables(self.tokenizer)
        matcher = LLMatcher(tables, self._lark(self._tools), log_level=0)
        if matcher.is_error():
            self._check_output(tables)
            lenient = self._not_expressible(tables)
            matcher = LLMatcher(tables, self._lark(self._tools, lenient), log_level=0)
        if matcher.is_error():
            reason = _first_line(matcher.get_error())
            raise GrammarError(f"no grammar can be made from the tools together: {reason}")
        return matcher

    def _check_output(self, tables: LLTokenizer) -> None:
        """See whether the schema of the answer alone can be made into a grammar."""
        from llguidance import LLMatcher

        if self._output is None:
            return
        if problem := LLMatcher.validate_grammar(self._lark([]), tables):
            raise GrammarError(
                f"no grammar can be made from the schema of the answer: {_first_line(problem)}; "
                "simplify output_type"
            )

    def _not_expressible(self, tables: LLTokenizer) -> list[str]:
        """Names of the tools whose schemas hold more than a grammar can express."""
        from llguidance import LLMatcher

        names: list[str] = []
        for tool in self._tools:
            name = tool["function"]["name"]
            problem = LLMatcher.validate_grammar(self._lark([tool]), tables)
            if not problem:
                continue
            if LLMatcher.validate_grammar(self._lark([tool], [name]), tables):
                raise GrammarError(
                    f"tool {name}: no grammar can be made from its schema: "
                    f"{_first_line(problem)}; simplify its parameters"
                )
            names.append(name)
            self.notes.append(
                f"tool {name}: a part of its schema is checked only once the call is written: "
                f"{_first_line(problem)}"
            )
        return names

    def _lark(self, tools: Sequence[Mapping[str, Any]], lenient: Container[str] = ()) -> str:
        calls = self.form.grammar(tools, self._tag, lenient) if tools else ""
        if self._output is not None:
            schema = {**strict(self._output), "x-guidance": {**JSON_STYLE, "lenient": False}}
            answer = f"%json {json.dumps(schema, ensure_ascii=False)}"
            called = f" | {self._tag(self.form.opening)} calls" if tools else ""
            return f"start: BLANK? (answer{called})\nanswer: {answer}\nBLANK: /\\n{{1,2}}/\n{calls}"
        if self.opening_id is not None:
            return f"start: calls\n{calls}"
        opening = json.dumps(self.form.opening)
        rules = [
            "start: TEXT | opened calls",
            f"opened[lazy]: {_TEXT} {opening}",  # ends at the first opening tag
            f"TEXT: {_TEXT} & ~({_TEXT} {opening} {_TEXT})",
        ]
        return "\n".join([*rules, calls])

    def _tag(self, text: str) -> str:
        """A tag in the grammar: its token where there is one, else its letters."""
        token = self._tags.get(text)
        return json.dumps(text) if token is None else f"<[{token}]>"

    def _free_mask(self) -> Mask | None:
        """What free text may be made of; None when that is every token."""
        tokenizer = self.tokenizer
        tags = (self.form.opening, self.form.closing, *self.form.reserved)
        vocabulary = tokenizer.vocabulary
        refused = {*vocabulary.hidden, *vocabulary.ids_of(TokenType.UNUSED)} - tokenizer.stop_ids
        refused |= set(tag_ids(tokenizer, tags).values())
        if self._tools:
            refused.discard(-1 if self.opening_id is None else self.opening_id)
        if not refused:
            return None
        allowed = np.zeros(-(-tokenizer.n_vocab // 32) * 32, np.uint8)
        allowed[: tokenizer.n_vocab] = 1
        allowed[list(refused)] = 0
        return np.packbits(allowed, bitorder="little").view(np.uint32)


class TurnConstraint:
    """The constraint of one turn of the model (see `Constraint`)."""

    def __init__(self, grammar: CallGrammar, matcher: LLMatcher | None) -> None:
        self._grammar = grammar
        self._matcher = matcher
        self._stops = grammar.tokenizer.stop_ids
        self._words = np.empty(-(-grammar.tokenizer.n_vocab // 32), np.uint32)
        self.done = False

    @property
    def in_call(self) -> bool:
        """Whether a call was opened, so that every further token is constrained."""
        return self._matcher is not None

    def mask(self) -> Mask | None:
        """Which tokens may come next (see `Constraint.mask`)."""
        if self._matcher is None:
            return self._grammar.free
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        self._check("the grammar of tool calls failed")
        return self._words

    def advance(self, token: int) -> None:
        """Token was sampled (see `Constraint.advance`)."""
        if self._matcher is not None:
            self._matcher.consume_token(token)
            self._check(f"token {token} breaks the grammar of tool calls")
        elif token == self._grammar.opening_id:
            self._matcher = self._grammar.matcher()
        self.done = self.done or token in self._stops

    def _check(self, what: str) -> None:
        assert self._matcher is not None
        if self._matcher.is_error():
            raise GrammarError(f"{what}: {_first_line(self._matcher.get_error())}")


class OutputConstraint:
    """The constraint of a turn whose answer must fit a schema (see `Constraint`).

    A model that thinks first may do so freely. Then comes the answer, or a call.
    """

    def __init__(self, grammar: CallGrammar, thinking: bool) -> None:
        self._grammar = grammar
        self._matcher = grammar.matcher()
        self._stops = grammar.tokenizer.stop_ids
        self._words = np.empty(-(-grammar.tokenizer.n_vocab // 32), np.uint32)
        tags = tag_ids(grammar.tokenizer, ("<think>", "</think>"))
        self._open, self._close = tags.get("<think>"), tags.get("</think>")
        self._thinking = thinking and self._close is not None
        self._begun = thinking
        self.done = False

    def mask(self) -> Mask | None:
        """Which tokens may come next (see `Constraint.mask`)."""
        if self._thinking:
            return self._grammar.free
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        self._check("the grammar of the answer failed")
        if not self._begun and self._open is not None:
            self._words[self._open // 32] |= np.uint32(1 << (self._open % 32))
        return self._words

    def advance(self, token: int) -> None:
        """Token was sampled (see `Constraint.advance`)."""
        self.done = self.done or token in self._stops
        if self._thinking:
            self._thinking = token != self._close
        elif not self._begun and token == self._open:
            self._thinking = self._close is not None
        else:
            self._matcher.consume_token(token)
            self._check(f"token {token} breaks the grammar of the answer")
        self._begun = True

    def _check(self, what: str) -> None:
        if self._matcher.is_error():
            raise GrammarError(f"{what}: {_first_line(self._matcher.get_error())}")


def tag_ids(tokenizer: Tokenizer, tags: Sequence[str]) -> dict[str, int]:
    """Those of the tags that are one token, with its id."""
    ids = {tag: tokenizer.encode(tag, special=True) for tag in tags}
    return {tag: found[0] for tag, found in ids.items() if len(found) == 1}


_tables: weakref.WeakKeyDictionary[Tokenizer, LLTokenizer] = weakref.WeakKeyDictionary()
_tables_lock = threading.Lock()


def matcher_tables(tokenizer: Tokenizer) -> LLTokenizer:
    """The matcher's view of a vocabulary; made once a tokenizer (0.5 s for 150,000 tokens)."""
    with _tables_lock:
        if tokenizer not in _tables:
            _tables[tokenizer] = _build_tables(tokenizer)
        return _tables[tokenizer]


def _build_tables(tokenizer: Tokenizer) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    if not tokenizer.stop_ids:
        raise GrammarError(
            "the model's vocabulary has no token that ends a turn, so no call can end; "
            "set tokenizer.ggml.eos_token_id in its file"
        )
    stops = sorted(tokenizer.stop_ids)
    return LLTokenizer(TokenizerWrapper(_Vocabulary(tokenizer, stops[0])), eos_token=stops)


class _Vocabulary:
    """What llguidance asks of a tokenizer. Special tokens match by id only, never as text."""

    def __init__(self, tokenizer: Tokenizer, eos: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = eos
        self.bos_token_id = tokenizer.bos
        self.special_token_ids = sorted(tokenizer.control_ids)
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]

    def __call__(self, text: bytes | str) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return self._tokenizer.encode(text)


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0][:300]
