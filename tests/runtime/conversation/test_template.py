"""Chat templates: real ones render as the reference does, hostile ones end in an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
from helpers.template_survey import (
    CONVERSATIONS,
    HEAD,
    OPTIONS,
    USER,
    markers,
    reference,
    rendered,
    survey,
    tool,
)

from triplepoint.errors import TemplateError
from triplepoint.runtime.conversation.template import MAX_SOURCE, ChatTemplate, TemplateRefusalError
from triplepoint.runtime.tokens.tokenizer import Tokenizer

TEMPLATES = Path(__file__).parents[4] / "shared" / "reference" / "templates"
NAMES = (
    "HuggingFaceTB-SmolLM3-3B",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "google-gemma-2-2b-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
)


# Without the templates, or transformers, one test says so for all.
_ALL = TEMPLATES.is_dir() and find_spec("transformers") is not None
REAL = [(name, talk) for name in NAMES for talk in CONVERSATIONS]
if not _ALL:
    REAL = REAL[:1]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "conversation"), REAL)
def test_renders_as_the_reference_does(name: str, conversation: str) -> None:
    """A real template gives the text that transformers gives, or both refuse."""
    path = TEMPLATES / f"{name}.jinja"
    if not path.exists():
        pytest.skip("the reference templates are not beside this checkout")
    pytest.importorskip("transformers", reason="the reference is transformers")
    source = path.read_text(encoding="utf-8")
    messages = CONVERSATIONS[conversation]
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    for count, options in product((0, 2), OPTIONS):
        schemas = [tool(f"tool_{i}") for i in range(count)] or None

        got = rendered(template, messages, schemas, options)

        assert got == reference(source, messages, schemas, options), (count, options)


OURS = sorted((Path(__file__).parents[2] / "helpers" / "families").glob("*.jinja"))


@pytest.mark.slow
@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_our_templates_render_as_the_reference_does(path: Path) -> None:
    """What the tests of families talk through is a template that transformers takes so too."""
    pytest.importorskip("transformers", reason="the reference is transformers")
    source = path.read_text(encoding="utf-8")
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    for (name, messages), count in product(CONVERSATIONS.items(), (0, 2)):
        schemas = [tool(f"tool_{i}") for i in range(count)] or None

        got = rendered(template, messages, schemas, {})

        assert got == reference(source, messages, schemas, {}), name


COLLECTION = os.environ.get("TRIPLEPOINT_TEMPLATES", "")
"""A folder of published templates, such as models/templates of llama.cpp's source."""


@pytest.mark.skipif(not COLLECTION, reason="TRIPLEPOINT_TEMPLATES names no folder of templates")
def test_a_collection_of_templates(make_tokenizer: Callable[..., Tokenizer]) -> None:
    """Each is rendered as the reference renders it or refused with a reason, and none is told one
    format and held to another, with a vocabulary that has its tags as tokens. With ``-s`` it prints
    a row a template."""
    pytest.importorskip("transformers", reason="the reference is transformers")
    paths = sorted(Path(COLLECTION).glob("*.jinja"))
    assert paths, f"there is no template in {COLLECTION}"
    sources = {p.name: p.read_text(encoding="utf-8") for p in paths}
    rows = [
        survey(name, source, make_tokenizer(template=None, control=markers(source)))
        for name, source in sources.items()
    ]
    print("", HEAD, *rows, sep="\n")

    assert [row.name for row in rows if row.wrong or row.equal < row.of] == []


def test_options_reach_the_template() -> None:
    """A further variable, such as enable_thinking, is seen by the template."""
    template = ChatTemplate("{{ 'no' if enable_thinking is false else 'yes' }}")

    assert template.render([USER]) == "yes"
    assert template.render([USER], options={"enable_thinking": False}) == "no"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for i in [1, 2, 3] %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "12"),
        ("{% for i in [1, 2] %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "2"),
        ("{% generation %}a{{ 'b' }}{% endgeneration %}c", "abc"),
        ("{{ {'a': ['<é>', 1.5, none]} | tojson }}", '{"a": ["<é>", 1.5, null]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1) }}", '{\n "b": 1,\n "a": 2\n}'),
        ("{% set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}", "2"),
        ("{% macro m(x=2) %}{{ x }}{{ caller() }}{% endmacro %}{% call m() %}!{% endcall %}", "2!"),
        ("{{ strftime_now('%d %b %Y') }}", "31 Jan 2026"),
        ("  {% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{{ messages[0]['role'] ~ '-' ~ messages[0].content[:4] }}", "user-What"),
        ("{{ 'a b'.split(' ') | map('upper') | join('+') }}", "A+B"),
        ("{{ '%s=%03d' % ('a', 7) }}{{ '%.1f' | format(2.25) }}", "a=0072.2"),
        ("{{ dict(a=1).items() | list }}{{ 'x' in ['x'] }}{{ '<' | e }}", "[('a', 1)]True&lt;"),
        ("{{ '<a{}|{b}>'.format(1, b='x') }}{{ '{0:>4}'.format('é') }}", "<a1|x>   é"),
        ("{{ '{a[b]}-{c.d!r}'.format(a={'b': 1}, c={'d': 'e'}) }}", "1-'e'"),
        ("{{ '{a:{n}.1f}'.format_map({'a': 2.25, 'n': 5}) }}|", "  2.2|"),
        ("{{ 'a'.center(3) }}{{ 'b'.rjust(2) }}{{ 'c'.ljust(2) }}{{ '7'.zfill(3) }}", " a  bc 007"),
        ("{{ 'a\tb'.expandtabs(4) }}{{ 'a'.isidentifier() }}", "a   bTrue"),
        ("{{ '<'|safe + '<' + 'a'|upper }}{{ '<' + '>'|e }}", "<&lt;A&lt;&gt;"),
        ("{{ '<'|safe ~ '>' }}{{ ('a'|safe) is string }}", "<>True"),
        ("{% for a in [1, [2]] recursive %}{{ a if a is number else loop(a) }}{% endfor %}", "12"),
    ],
)  # fmt: skip
def test_language(source: str, expected: str) -> None:
    """What real templates use works as in Hugging Face's environment."""
    template = ChatTemplate(source, now=datetime(2026, 1, 31))

    assert expected == template.render([USER])


DOUBLING = (
    "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}"
)
TWO_DAGS = (
    "{% set a = namespace(x=(1,)) %}{% set b = namespace(x=(1,)) %}{% for i in range(60) %}"
    "{% set a.x = (a.x, a.x) %}{% set b.x = (b.x, b.x) %}{% endfor %}"
)  # fmt: skip
LONG = "{% set x = 'a' * 1000000 %}{% for i in range(20000) %}BODY{% endfor %}"


def doubling(start: str, step: str, end: str) -> str:
    """A value that doubles sixty times, and a use of it."""
    return DOUBLING.replace("START", start).replace("STEP", step) + end


DAG = ("(1,)", "(ns.x, ns.x)")
HOSTILE = {
    # loops and recursion
    "loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "loop condition": "{% for a in range(9999) %}{% for b in range(9999) if 0 %}"
    "{% endfor %}{% endfor %}",
    "loop over text": "{% for c in 'a' * 1000000 %}{% endfor %}",
    "range": "{% for a in range(10 ** 9) %}x{% endfor %}",
    "range as list": "{{ range(10 ** 18) | list }}",
    "macro": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "macro tree": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
    "{{ f(40) }}",
    "callers": "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + "{% call m() %}" * 18 + "x" * 100 + "{% endcall %}" * 18,
    "recursive loop": "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "recursive block": "{% block a %}{{ self.a() }}{% endblock %}",
    "lazy filters": "{% for i in range(999) %}{{ range(9999) | map('string') | list }}{% endfor %}",
    "sorts": "{% for i in range(9999) %}{% set x = range(9999) | sort %}{% endfor %}",
    "macros that call each other": "{% macro f(x) %}{{ g(x) }}{% endmacro %}"
    "{% macro g(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "three loops": "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "negative range": "{% for a in range(0, -(10 ** 12), -1) %}{% endfor %}",
    # numbers
    "power": "{{ 9 ** (9 ** 9) }}",
    "squares": doubling("7", "ns.x * ns.x", "{{ ns.x }}"),
    "round": "{{ 1 | round(10 ** 9, 'ceil') }}",
    # long texts
    "repeat": "{{ 'a' * 10 ** 10 }}",
    "repeat, turned": "{{ 10 ** 10 * 'a' }}",
    "repeated list": "{{ [1] * 10 ** 10 }}",
    "plus": doubling("'aaaa'", "ns.x + ns.x", "{{ ns.x }}"),
    "tilde": doubling("'aaaa'", "ns.x ~ ns.x", "{{ ns.x }}"),
    "block set": "{% set ns = namespace(x='aaaa') %}{% for i in range(60) %}"
    "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "data in a loop": "{% for i in range(20000) %}" + "x" * 60000 + "{% endfor %}",
    "output": "{% for i in range(9999) %}{% for j in range(9999) %}{{ i }} "
    "{% endfor %}{% endfor %}",
    "center": "{{ 'x' | center(10 ** 9) }}",
    "str.center": "{{ 'x'.center(10 ** 9) }}",
    "str.zfill": "{{ 'x'.zfill(10 ** 9) }}",
    "str.expandtabs": r"{{ '\t'.expandtabs(10 ** 9) }}",
    "str.replace": "{{ ('a' * 1000).replace('a', 'b' * 1000).replace('b', 'c' * 1000) }}",
    "replace": "{{ ('a' * 1000) | replace('a', 'b' * 1000) | replace('b', 'c' * 1000) }}",
    "replace nothing": "{{ ('a' * 100000) | replace('', 'b' * 1000) }}",
    "str.join": "{{ ('x' * 100000).join('y' * 100000) }}",
    "join": "{{ range(20000) | join('x' * 100000) }}",
    "indent": r"{{ ('\n' * 100000) | indent(10000) }}",
    "indent of other lines": r"{{ ('\r' * 5000) | indent(20000, true, true) }}",
    "a value again and again": "{{ ('%(a)s' * 150) % {'a': 'x' * 500000} }}",
    "the same as a filter": "{{ ('%(a)s' * 150) | format(a='x' * 500000) }}",
    "indent by text": r"{{ ('\n' * 100000) | indent('x' * 10000) }}",
    "str.translate": "{{ ('a' * 1000).translate({97: 'b' * 100000}) }}",
    "JSON indent": "{{ {'a': [1, 2]} | tojson(indent=10 ** 9) }}",
    "JSON separators": "{{ [1, 2] | tojson(separators=('x' * 1000000, 'y')) }}",
    "escape": "{{ ('<' * 900000) | e | e | e | e }}",
    "batch": "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "slice": "{{ [1] | slice(10 ** 9) | list }}",
    "join shared": "{{ ''.join(([{'a': 'x' * 100000}] * 9999) | map(attribute='a')) }}",
    "join shared, filter": "{{ ([{'a': 'x' * 100000}] * 9999) | map(attribute='a') | join }}",
    "shared in": "{% set x = 'a' * 500000 %}{% set y = x + 'b' %}{% for i in range(999) %}"
    "{{ y in ([{'a': x + 'c'}] * 9999) | map(attribute='a') }}{% endfor %}",
    "join views": "{% set d = dict(a='x' * 900000, b='y' * 900000) %}"
    "{{ ([d] * 99) | map('items') | join }}{{ ''.join(([d] * 99)[0].values()) }}",
    # searches that are slow in C
    "strip": "{{ ('a' * 900000).strip('b' * 900000 + 'a') }}",
    "trim": "{{ ('a' * 900000) | trim('b' * 900000 + 'a') }}",
    "rfind": "{{ ('a' * 900000).rfind('b' + 'a' * 400000) }}",
    "rsplit": "{{ ('a' * 900000).rsplit('b' + 'a' * 400000) }}",
    "reverse": LONG.replace("BODY", "{% set y = x | reverse %}"),
    "list of text": LONG.replace("BODY", "{% set y = x | list %}"),
    # formats with a width
    "percent": "{{ '%999999999d' % 1 }}",
    "percent many": "{{ ('%(a)999d' * 100000) % {'a': 1} }}",
    "percent star": "{{ '%*d' % (999999999, 1) }}",
    "format filter": "{{ '%999999999d' | format(1) }}",
    "str.format": "{{ '{:999999999}'.format(1) }}",
    "str.format, star": "{{ '{:{}}'.format(1, 999999999) }}",
    "str.format, number": "{{ '{:.999999999f}'.format(1.5) }}",
    "str.format, many": "{{ ('{0}' * 9999).format('a' * 100000) }}",
    "str.format, long": LONG.replace("BODY", "{% set y = x.format() %}"),
    "str.format, shared": doubling(*DAG, "{{ '{}'.format(ns.x) }}{{ '{!r}'.format(ns.x) }}"),
    "str.format, item": "{{ '{0[__class__]}'.format('') }}",
    "str.format, its own": "{{ '{}'.format._env }}",
    "str.format, its own, inside": "{{ '{0._env.steps}'.format('{}'.format) }}",
    "str.format, global": "{{ '{0.__globals__}'.format(raise_exception) }}",
    "str.format, call": "{{ '{0.__init__.__globals__[os]}'.format(namespace()) }}",
    "str.format, of a map": "{{ ['{0.__class__}'] | map('format', 1) | list }}"
    "{{ '{0.__class__}'.format(1) }}",
    "str.format_map": "{{ '{:999999999}'.format_map({}) }}",
    "str.ljust": "{{ 'x'.ljust(10 ** 9) }}",
    "str.rjust": "{{ 'x'.rjust(10 ** 9) }}",
    "str.center, many": LONG.replace("BODY", "{% set y = 'x'.center(1000000) %}"),
    "safe": doubling("'<<<<' | safe", "ns.x + ('<' * 1000)", "{{ ns.x + ('<' * 1000000) }}"),
    "strftime": "{{ strftime_now('%999999999d') }}",
    # values that share their parts: small in memory, endless as text, hash or comparison
    "shared, output": doubling(*DAG, "{{ ns.x }}"),
    "shared, JSON": doubling(*DAG, "{{ ns.x | tojson }}"),
    "shared, tilde": doubling(*DAG, "{{ ns.x ~ '' }}"),
    "shared, key": doubling(*DAG, "{{ {ns.x: 1} | length }}"),
    "shared, item": doubling(*DAG, "{{ {}[ns.x] }}"),
    "shared, get": doubling(*DAG, "{{ {}.get(ns.x) }}"),
    "shared, unique": doubling(*DAG, "{{ [ns.x, 1] | unique | list | length }}"),
    "nested key": "{% set ns = namespace(x=(1,)) %}{% for i in range(9999) %}"
    "{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} | length }}",
    "nested JSON": "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}"
    "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
    "shared, equal": TWO_DAGS + "{{ a.x == b.x }}",
    "shared, in": TWO_DAGS + "{{ a.x in [b.x] }}",
    "shared, test": TWO_DAGS + "{{ a.x is eq b.x }}",
    "shared, select": TWO_DAGS + "{{ [a.x] | select('eq', b.x) | list | length }}",
    "shared, changed": TWO_DAGS
    + "{% for q in [1, 2] %}{{ loop.changed(a.x if q == 1 else b.x) }}{% endfor %}",
    # cheap operations on a long text, many times
    "slices": LONG.replace("BODY", "{% set y = x[::-1] %}"),
    "comparisons": LONG.replace("BODY", "{% if x == x + '' %}{% endif %}"),
    "searches": LONG.replace("BODY", "{% if 'b' in x %}{% endif %}"),
    "uppercase": LONG.replace("BODY", "{% set y = x | upper %}"),
    "splits": LONG.replace("BODY", "{% set y = x.split('a') %}"),
    # reaching for the host
    "class": "{{ ''.__class__.__mro__ }}",
    "class item": "{{ ''['__class__'] }}",
    "attr": "{{ '' | attr('__class__') }}",
    "map attribute": "{{ [''] | map(attribute='__class__') | list }}",
    "format attribute": "{{ '{0.__class__}'.format(1) }}",
    "format_map": "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "function globals": "{{ raise_exception.__globals__ }}",
    "builtins": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "self": "{{ self.__init__.__globals__ }}",
    "context": "{{ self._TemplateReference__context }}",
    "namespace init": "{{ namespace.__init__.__globals__ }}",
    "class by text": "{{ ''['__cla' ~ 'ss__'] }}",
    "class by format": "{{ '%s' | format(''.__class__) }}",
    "subclasses": "{{ ().__class__.__base__.__subclasses__() }}",
    "attribute of a text": "{{ messages | map(attribute='content.__class__') | list }}",
    "sort by internals": "{{ ['a'] | sort(attribute='__class__') }}",
    "group by internals": "{{ ['a'] | groupby('__class__') }}",
    "select by internals": "{{ ['a'] | selectattr('__class__') | list }}",
    "undefined inside": "{{ nothing.__init__.__globals__ }}",
    "caller": "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "joined": "{{ ['__class__'] | map('attr') | list }}",
    "macro function": "{% macro m() %}{% endmacro %}{{ m._func }}",
    "loop inside": "{% for x in [1] %}{{ loop._iterable }}{% endfor %}",
    "type method": "{{ dict.fromkeys(range(100)) }}",
    "mro": "{{ dict.mro() }}",
    "the sandbox": "{{ environment.steps }}",
    "more steps": "{{ pay(-1000000) }}",
    "change": "{{ messages.append(1) }}",
    "change item": "{{ messages[0].pop('role') }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "extends": "{% extends 'x' %}",
    "debug": "{% debug %}",
    "bytes": "{{ 'x'.encode('utf-8') }}",
    # sources that strain lexer, parser and compiler
    "parentheses": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "lists": "{{ " + "[" * 3000 + "1" + "]" * 3000 + " }}",
    "nested loops": "{% for a in [1] %}" * 300 + "{% endfor %}" * 300,
    "nested loops, fewer": "{% for a in [1] %}" * 60 + "{% endfor %}" * 60,
    "nested blocks": "{% set x %}" * 60 + "{% endset %}" * 60,
    "nested conditions": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "minus": "{{ " + "-" * 5000 + "1 }}",
    "nots": "{{ " + "not " * 5000 + "1 }}",
    "sum": "{{ " + "+".join(["1"] * 8000) + " }}",
    "filters": "{{ 'a'" + "|upper" * 8000 + " }}",
    "attributes": "{{ a" + ".b" * 8000 + " }}",
    "many loops": "{% for i in range(20000) if 0 %}{% endfor %}" * 1300,
    "many words": "{{ a }}" * 9000,
    "many parts": "{{ [" + "[1]," * 2500 + "] }}",
    "unclosed": "{% for x in y %}",
    "unknown tag": "{% foo %}",
    "too long": "x" * (MAX_SOURCE + 1),
    "namespaces in each other": (
        "{% set n=namespace(v='x') %}{% for i in range(60) %}{% set n.v=namespace(p=n.v,q=n.v) %}"
        "{% endfor %}{{ n.v }}"
    ),
    "a large named argument": (
        "{% set n=namespace(v=['x']) %}{% for i in range(60) %}{% set n.v=[n.v,n.v] %}{% endfor %}"
        "{{ raise_exception(message=n.v) }}"
    ),
    "a large named argument of a filter": (
        "{% set n=namespace(v=['x']) %}{% for i in range(60) %}{% set n.v=[n.v,n.v] %}{% endfor %}"
        "{{ [1]|join(d=n.v) }}"
    ),
    "a named width": "{{ ('\\t' * 300).expandtabs(tabsize=1000000) }}",
    "a long way": (
        "{% set a=('a.'*100000)~'a' %}{{ range(2000)|map(attribute=a,default='x')|list }}"
    ),
    # plain mistakes
    "undefined": "{{ foo.bar }}",
    "call of nothing": "{{ foo() }}",
    "refusal": "{{ raise_exception('x' * 100000) }}",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_template_ends_in_an_error(name: str) -> None:
    """A template that loops, grows, or reaches for the host ends in a short TemplateError."""
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(HOSTILE[name]).render([USER])

    assert len(str(caught.value)) < 1000


def test_nesting_is_refused_before_it_is_compiled() -> None:
    """Blocks in each other, of which the compiler takes the square in time, are counted first."""
    for begin, end in (("{% for a in [1] %}", "{% endfor %}"), ("{% set x %}", "{% endset %}")):
        assert ChatTemplate(begin * 10 + "x" + end * 10).render([USER]) in ("x", "")
        with pytest.raises(TemplateError, match="nests more than 10 blocks"):
            ChatTemplate(begin * 11 + end * 11)


def test_a_refusal_is_told_apart() -> None:
    """raise_exception is a refusal with the template's own words."""
    template = ChatTemplate("{{ raise_exception('System role not supported') }}")

    with pytest.raises(TemplateRefusalError, match="System role not supported"):
        template.render([USER])


def test_an_error_names_the_line() -> None:
    """The message says on which line of the template it happened."""
    template = ChatTemplate("{# one #}\n{# two #}\n{{ messages[0].content.nope.more }}")

    with pytest.raises(TemplateError, match="line 3"):
        template.render([USER])


def test_steps_grow_with_the_conversation() -> None:
    """A long conversation is no attack: two thousand messages render, and render again."""
    source = (
        "{% for m in messages %}{% for n in messages[:20] %}{{ n.role[0] }}{% endfor %}{% endfor %}"
    )
    template = ChatTemplate(source)
    messages = [USER] * 2000

    assert template.render(messages) == "u" * 40_000
    assert template.render(messages) == "u" * 40_000


def test_a_failed_render_leaves_no_trace() -> None:
    """After a render ran out of steps, the next one has all of them again."""
    template = ChatTemplate(
        "{% for a in range(n) %}{% for b in range(n) %}{% endfor %}{% endfor %}."
    )

    with pytest.raises(TemplateError):
        template.render([USER], options={"n": 9999})
    assert template.render([USER], options={"n": 9}) == "."


def test_a_source_is_compiled_once() -> None:
    """Two templates of one source have a clock and tokens of their own."""
    source = "{{ bos_token }}{{ strftime_now('%Y') }}{{ messages[0].content }}"
    templates = [
        ChatTemplate(source, bos=f"<{year}>", now=datetime(year, 1, 1)) for year in (2001, 2002)
    ]
    told = [template.render([{"role": "user", "content": "x"}]) for template in templates]

    assert told == ["<2001>2001x", "<2002>2002x"]
    assert templates[0].variables == templates[1].variables
