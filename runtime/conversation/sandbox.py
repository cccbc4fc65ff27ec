"""Runs chat templates in a metered Jinja sandbox: every step and character is counted.

A chat template comes from a downloaded file, so it is a program by a stranger. Three walls:

- it sees plain JSON data and a fixed list of filters, functions and methods, nothing else;
- no value that it makes grows past `MAX_TEXT` characters or `MAX_ITEMS` items;
- each loop pass, call, filter and operator costs steps in proportion to the data it touches, and
  a render has a fixed number of them.

Steps instead of a clock: the same template with the same input always renders, or never does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from datetime import datetime
from itertools import islice
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import Undefined, nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.ext import loopcontrols
from jinja2.filters import FILTERS
from jinja2.lexer import TokenStream
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.tests import TESTS
from jinja2.utils import Namespace, pass_context

from ..tokens.segments import HTML
from .template_budget import Generation, Metered

MAX_TEXT = 1 << 20  # characters; the schemas of a few hundred tools fit
MAX_ITEMS = 20_000
MAX_PARTS = 40_000  # of a value with all that it holds
MAX_DEPTH = 100  # of lists in lists
MAX_BITS = 4096  # of an integer
# Sizes of a template. A template at all its limits, which then uses all its steps, takes 60 ms to
# refuse on one core of a Zen 5. Most that models ship have a fourth of this; the longest, half.
MAX_WORDS = 5_000  # lexed from it
MAX_NODES = 1_500  # when it is parsed
MAX_NESTED = 10  # blocks in each other; compiling takes time with the square of that

Word = tuple[int, str, str]  # line, kind, text

_CHARS_A_STEP = 128  # touching that much text takes about as long as a call
_ITEMS_A_STEP = 8
_COMPARISONS_A_STEP = 1024
_ITEM_CHARS = 16  # what an item counts as text, apart from what it holds


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_METHODS: dict[type, frozenset[str]] = {
    str: _words(
        "capitalize casefold center count endswith expandtabs find index isalnum isalpha isascii "
        "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper "
        "join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex rjust "
        "rpartition rsplit rstrip split splitlines startswith strip swapcase title upper zfill"
    ),
    dict: _words("copy get items keys values"),
    list: _words("copy count index"),
    tuple: _words("count index"),
}
_FILTERS = _words(
    "abs batch capitalize count d default dictsort first float format groupby indent int items "
    "join last length list lower map max min reject rejectattr replace reverse select selectattr "
    "slice sort string sum title trim truncate unique upper wordcount"
)
_NO_LOOK_INSIDE = _words(
    "batch count d default first items last length list map reject rejectattr reverse select "
    "selectattr slice"
)
"""Filters that do not read into their items; all others are charged for the items' contents."""
_KEYED = _words("dictsort groupby max min sort unique")
"""Filters that call a Python function per item."""
_BY_ATTRIBUTE = _words("groupby map max min rejectattr selectattr sort sum unique")
"""Filters that look up an attribute of each item by a dotted path."""
MAX_STEPS_DOWN = 16  # dots in the name of such a part
_ONE_BY_ONE = _words("strip lstrip rstrip rfind rindex rsplit rpartition trim")
"""String methods whose time is the product of text and argument lengths."""
_ESCAPED = 5  # characters that one becomes at most
_LONG_NUMBER = re.compile(r"\d{3}|\*")  # a width in a format: '%9999999d' fills the memory
_PADDING = _words("center ljust rjust zfill")
_NESTING = (
    *(nodes.For, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock),
    *(nodes.With, nodes.Block),
)
_PASSING = (Iterator, KeysView, ValuesView, ItemsView)


class OutOfStepsError(TemplateRuntimeError):
    """Error of a template that exceeds its step budget or makes too large a value."""


class RefusalError(TemplateRuntimeError):
    """Error of a template that calls ``raise_exception``."""


class Sandbox(ImmutableSandboxedEnvironment):
    """The sandboxed Jinja environment of one template.

    Args:
        now: what ``strftime_now`` formats; fixed, so that a conversation has one date.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self, now: datetime) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, Generation],
            # Constants are not folded: folding would run filters before the meter does.
            optimized=False,
            finalize=self._finalize,
        )
        self.steps = 0  # set before each render
        self.text = 0
        self.names: frozenset[str] = frozenset()  # in the template that was compiled last
        self._now = now
        self.filters = {name: self._metered_filter(name, FILTERS[name]) for name in _FILTERS}
        self.filters |= {
            "tojson": self._to_json,
            "e": self._metered_filter("escape", _escaped),
            "escape": self._metered_filter("escape", _escaped),
            "safe": self._metered_filter("safe", _Safe),
        }
        self.tests = {name: self._metered_test(test) for name, test in TESTS.items()}
        functions: dict[str, Callable[..., Any]] = {
            "range": _bounded_range,
            "dict": dict,
            "namespace": Namespace,
            "raise_exception": _refuse,
            "strftime_now": self._strftime,
        }
        self.globals = dict(functions)
        own = (self.pay, self.charge, self.charge_copy, self.join_text)
        self._callable = [*functions.values(), *own]

    # What the rewritten template calls.

    def pay(self, steps: int, text: int = 0) -> None:
        """Deduct steps and characters of output from the budget."""
        self.steps -= steps
        self.text -= text
        if self.steps < 0:
            raise OutOfStepsError("it loops or recurses too long")
        if self.text < 0:
            raise OutOfStepsError(f"it renders more than {MAX_TEXT:,} characters")

    def charge(self, value: Any) -> Any:
        """Charge for reading a value and its items; return the value, iterators made lists."""
        value = _solid(value)
        self.pay(1 + _size(value) // _CHARS_A_STEP)
        return value

    def charge_copy(self, value: Any) -> Any:
        """Charge for a shallow copy of a text or list; return the value."""
        self.pay(1 + _count(value) // (_CHARS_A_STEP if isinstance(value, str) else _ITEMS_A_STEP))
        return value

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Evaluate ``a[b]``; charge for a tuple key, which may be deeply nested."""
        if isinstance(argument, tuple):
            self.charge(argument)
        return super().getitem(obj, argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Evaluate ``a.b``; refuse Python's dunder names, existing or not."""
        if attribute.startswith("__"):
            self.unsafe_undefined(obj, attribute)
        return super().getattr(obj, attribute)

    def join_text(self, *values: Any) -> str:
        """Evaluate the ``~`` operator."""
        return "".join(str(self.charge(value)) for value in values)

    # Jinja's hooks.

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        """Tokenize a template; refuse one with more than `MAX_WORDS` tokens."""
        words = _up_to(self.lexer.tokeniter(source, name, filename, state), MAX_WORDS)
        return TokenStream(self.lexer.wrap(words, name, filename), name, filename)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        parts = list(islice(source.find_all(nodes.Node), MAX_NODES + 1))
        if len(parts) > MAX_NODES:
            raise OutOfStepsError(f"it has more than {MAX_NODES:,} parts")
        if _nested(source) > MAX_NESTED:
            raise OutOfStepsError(f"it nests more than {MAX_NESTED} blocks in each other")
        self.names = frozenset(n.name for n in parts if isinstance(n, nodes.Name))
        return super()._generate(Metered().visit(source), *args, **kwargs)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Raise on access to Python's internals, where Jinja would render an empty text."""
        raise SecurityError(f"it reaches for {attribute!r} of a {type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> _Format | None:
        """Wrap ``str.format`` and ``str.format_map`` to charge this budget."""
        if not isinstance(value, BuiltinMethodType) or not isinstance(value.__self__, str):
            return None
        name = value.__name__
        return _Format(self, value.__self__, name) if name in ("format", "format_map") else None

    def is_safe_callable(self, obj: Any) -> bool:
        """Allow only macros, the loop, the sandbox's functions, and listed methods of data."""
        if isinstance(obj, Macro | LoopContext | _Format):
            return True
        if isinstance(obj, BuiltinMethodType):
            kind = str if isinstance(obj.__self__, str) else type(obj.__self__)
            allowed = _METHODS.get(kind, frozenset())
            return obj.__name__ in allowed or obj in self._callable
        if isinstance(obj, MethodType) and isinstance(obj.__self__, LoopContext):
            return obj.__name__ in ("cycle", "changed")
        return obj in self._callable

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Run a call of a template: charge its arguments, bound its result."""
        if not (isinstance(obj, Undefined) or self.is_safe_callable(obj)):
            raise SecurityError(f"it calls {getattr(obj, '__name__', type(obj).__name__)!r}")
        if isinstance(obj, MethodType) and obj.__self__ is self:
            return obj(*args)
        self.pay(1)
        if not isinstance(obj, Macro):
            args = tuple(map(self.charge, args))
            kwargs = {name: self.charge(value) for name, value in kwargs.items()}
        text = getattr(obj, "__self__", None)
        if isinstance(text, str):
            self.charge(text)
            self._expect(getattr(obj, "__name__", ""), text, (*args, *kwargs.values()))
        return self._bounded(context.call(obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Evaluate an arithmetic operator; its result's size is checked first."""
        self.pay(1)
        if operator in "+%" and isinstance(left, str):
            self.charge((left, right))
        if operator == "%" and isinstance(left, str):
            if _LONG_NUMBER.search(left):
                raise OutOfStepsError("it formats with a width")
            _expect_text(len(left) + left.count("%") * _size(right))  # each may be there again
        if operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(many, str | list | tuple) and isinstance(times, int):
                    _expect_text(len(many) * times)
        if isinstance(left, int) and isinstance(right, int):
            bits = {"*": left.bit_length() + right.bit_length()}
            bits["**"] = left.bit_length() * max(right, 1) if right < MAX_BITS else MAX_BITS + 1
            if bits.get(operator, 0) > MAX_BITS:
                raise OutOfStepsError("it makes a number that is too large")
        texts = isinstance(left, str) and isinstance(right, str) and operator == "+"
        if texts and _Safe in (type(left), type(right)):
            return self._bounded(_joined(left, right))
        return self._bounded(super().call_binop(context, operator, left, right))

    @pass_context
    def _finalize(self, context: Context, value: Any) -> Any:
        """Charge for a value that is output, in the text or in a block; return the value."""
        value = _solid(value)
        size = _size(value)
        self.pay(1 + size // _CHARS_A_STEP, text=size)
        return value

    def _metered_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        passed = getattr(function, "jinja_pass_arg", None)

        def metered(*args: Any, **kwargs: Any) -> Any:
            head, values = list(args[: bool(passed)]), list(args[bool(passed) :])
            self.pay(1)
            if name not in _NO_LOOK_INSIDE or isinstance(values[0], str):
                values = list(map(self.charge, values))
            kwargs = {key: self.charge(value) for key, value in kwargs.items()}
            if name in _KEYED:
                self.pay(_count(values[0]))
            if name in _BY_ATTRIBUTE:
                ways = (*values[1:], kwargs.get("attribute"))
                if any(isinstance(one, str) and one.count(".") > MAX_STEPS_DOWN for one in ways):
                    raise OutOfStepsError(f"it gives the filter {name!r} too long a way")
            further = (*values[1:], *kwargs.values())
            for argument in further:
                if isinstance(argument, int) and abs(argument) > MAX_ITEMS:
                    raise OutOfStepsError(f"it gives {argument} to the filter {name!r}")
            if isinstance(values[0], str):
                self._expect(name, values[0], further)
            elif name == "join":
                separator = further[0] if further else ""
                _expect_text(_size(values[0]) + len(str(separator)) * _count(values[0]))
            return self._bounded(function(*head, *values, **kwargs))

        if passed:
            metered.jinja_pass_arg = passed  # type: ignore[attr-defined]
        return metered

    def _metered_test(self, function: Callable[..., Any]) -> Callable[..., Any]:
        passed = getattr(function, "jinja_pass_arg", None)

        def metered(*args: Any) -> Any:
            head, values = args[: bool(passed)], args[bool(passed) :]
            return function(*head, *map(self.charge, values))

        if passed:
            metered.jinja_pass_arg = passed  # type: ignore[attr-defined]
        return metered

    def _expect(self, name: str, text: str, args: Iterable[Any]) -> None:
        """Refuse a text method or filter whose result would be too long; charge for a slow one."""
        args = list(args)
        _expect_text(_grown(name, text, args))
        if name in _ONE_BY_ONE:
            longest = max((len(arg) for arg in args if isinstance(arg, str)), default=0)
            self.pay(len(text) * longest // _COMPARISONS_A_STEP)

    def _bounded(self, value: Any) -> Any:
        """Refuse a result that is too large; charge for its items and return it."""
        if isinstance(value, str):
            _expect_text(len(value))
            self.pay(len(value) // _CHARS_A_STEP)
        elif isinstance(value, list | tuple | dict):
            if len(value) > MAX_ITEMS:
                raise OutOfStepsError(f"it makes {len(value):,} items (at most {MAX_ITEMS:,})")
            self.pay(len(value) // _ITEMS_A_STEP)
        return value

    def _strftime(self, text: str) -> str:
        if len(text) > 200 or _LONG_NUMBER.search(text):
            raise OutOfStepsError("it formats a date with a width")
        return self._now.strftime(text)

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Serialize to JSON as Hugging Face does: no HTML escapes, ", " and ": "."""
        self.charge(value)
        if indent is not None and not 0 <= indent <= 8:
            raise OutOfStepsError(f"it indents JSON by {indent}")
        if separators is not None and sum(map(len, separators)) > 16:
            raise OutOfStepsError("it separates JSON by long text")
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )


def _up_to(words: Iterator[Word], limit: int) -> Iterator[Word]:
    for n, word in enumerate(words):
        if n == limit:
            raise OutOfStepsError(f"it has more than {limit:,} words")
        yield word


def _bounded_range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > MAX_ITEMS:
        raise OutOfStepsError(f"it makes a range of {len(numbers):,} (at most {MAX_ITEMS:,})")
    return numbers


def _refuse(message: object) -> None:
    raise RefusalError(str(message)[:500])


class _Safe(str):
    """Markup string from ``safe`` or ``escape``: ``+`` escapes the other operand, as in Jinja."""


def _escaped(value: object) -> _Safe:
    return value if isinstance(value, _Safe) else _Safe(str(value).translate(HTML))


def _joined(*texts: Any) -> _Safe:
    _expect_text(sum(len(t) * (1 if isinstance(t, _Safe) else _ESCAPED) for t in texts))
    return _Safe("".join(map(_escaped, texts)))


class _Format:
    """Metered ``format`` or ``format_map`` method of one string."""

    __slots__ = ("_env", "_name", "_text")

    def __init__(self, env: Sandbox, text: str, name: str) -> None:
        self._env, self._text, self._name = env, text, name

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        self._env.charge(self._text)
        if self._name == "format_map":
            if len(args) != 1 or kwargs or not isinstance(args[0], Mapping):
                raise TypeError("format_map() takes one mapping")
            return _Formatter(self._env).vformat(self._text, (), args[0])
        return _Formatter(self._env).vformat(self._text, args, kwargs)


class _Formatter(SandboxedFormatter):
    """Formatter that charges for each field first and refuses large widths."""

    _env: Sandbox

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return super().convert_field(self._env.charge(value), conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        if _LONG_NUMBER.search(format_spec):
            raise OutOfStepsError("it formats with a width")
        return self._env.charge(super().format_field(self._env.charge(value), format_spec))


def _nested(node: nodes.Node) -> int:
    """Return the nesting depth of blocks that have a scope of their own."""
    inside = max(map(_nested, node.iter_child_nodes()), default=0)
    return inside + isinstance(node, _NESTING)


def _expect_text(length: int) -> None:
    if length > MAX_TEXT:
        raise OutOfStepsError(f"it makes a text of {length:,} characters (at most {MAX_TEXT:,})")


def _grown(name: str, text: str, args: Iterable[Any]) -> int:
    """Return an upper bound for the length of the result of a text method or filter."""
    args = list(args)
    texts = [a for a in args if isinstance(a, str)]
    if name == "replace" and len(texts) == 2:
        return len(text) + (text.count(texts[0]) if texts[0] else len(text) + 1) * len(texts[1])
    if name == "indent":
        width = next((a if isinstance(a, int) else len(a) for a in args), 4)
        return len(text) + (len(text.splitlines()) + 1) * width
    if name == "join":
        return sum(_size(a) + _count(a) * len(text) for a in args)
    if name == "escape":
        return _ESCAPED * len(text)
    if name in _PADDING:
        return max(len(text), *(a for a in args if isinstance(a, int)), 0)
    if name == "expandtabs":
        width = next((a for a in args if isinstance(a, int)), 8)
        return len(text) + text.count("\t") * max(width, 0)
    if name == "format":
        times = text.count("%") + text.count("{")  # a value may be there again and again
        return MAX_TEXT + 1 if _LONG_NUMBER.search(text) else len(text) + times * _size(args)
    return len(text)


def _count(value: Any) -> int:
    try:
        return len(value)
    except TypeError:  # a generator: as many as there may be
        return MAX_ITEMS


def _solid(value: Any) -> Any:
    """Convert an iterator or a dict view to a list; return any other value unchanged."""
    if isinstance(value, LoopContext) or not isinstance(value, _PASSING):
        return value
    items = list(islice(value, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise OutOfStepsError(f"it makes more than {MAX_ITEMS:,} items")
    return items


def _size(value: Any) -> int:
    """Return the approximate length of a value as text; repeated parts count again."""
    if isinstance(value, str):
        return len(value)
    total = parts = 0
    todo: list[tuple[Any, int]] = [(value, 0)]
    while todo:
        item, depth = todo.pop()
        parts += 1
        if isinstance(item, str):
            total += len(item) + 4
            continue
        total += _ITEM_CHARS
        if isinstance(item, dict):
            todo.extend((key, depth + 1) for key in item)
            todo.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, list | tuple):
            todo.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, Namespace):  # shown with all that it holds
            todo.append((object.__getattribute__(item, "_Namespace__attrs"), depth + 1))
        elif isinstance(item, int):
            total += item.bit_length() // 3
        large = total > 2 * MAX_TEXT or parts + len(todo) > MAX_PARTS
        if large or depth > MAX_DEPTH:
            raise OutOfStepsError("it makes a value that is too large or nested too deeply")
    return total
