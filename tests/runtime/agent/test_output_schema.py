"""Types of answers: what their grammar writes, they read."""

from __future__ import annotations

import datetime
import ipaddress
import json
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import pydantic
import pytest
from helpers.grammar_samples import grammar_of, sample
from pydantic import BaseModel, Discriminator, Tag, TypeAdapter, networks

from triplepoint.errors import AgentError
from triplepoint.runtime.agent.structured_output import OutputType
from triplepoint.runtime.tokens.tokenizer import Tokenizer

TYPES: list[Any] = [
    *(datetime.datetime, pydantic.NaiveDatetime, pydantic.AwareDatetime),
    *(datetime.date, datetime.time, datetime.timedelta),
    *(uuid.UUID, pydantic.UUID1, pydantic.UUID4, pydantic.UUID7),
    *(ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv4Interface),
    *(ipaddress.IPv6Address, ipaddress.IPv6Network, ipaddress.IPv6Interface),
    *(networks.IPvAnyAddress, networks.IPvAnyNetwork, networks.IPvAnyInterface),
    *(pydantic.AnyUrl, pydantic.HttpUrl, networks.WebsocketUrl, networks.FileUrl),
    *(networks.PostgresDsn, networks.MongoDsn, networks.RedisDsn, networks.NatsDsn),
    *(pydantic.Base64Bytes, pydantic.Base64UrlBytes, bytes, pydantic.SecretStr, Decimal),
    dict[Literal["a", "b"], Decimal],
    list[pydantic.NaiveDatetime | None],
]
"""pydantic's texts that have a form. What is left to the check of the answer: whether a file is
there, a pattern or JSON in a text, bounds of dates, domains that e-mail libraries refuse."""


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_reads_what_its_grammar_writes(make_tokenizer: Any, kind: Any) -> None:
    """Random answers, each of which the type takes."""
    output = OutputType(kind)
    grammar = grammar_of(make_tokenizer(), output.schema)
    written = [text for seed in range(4) if (text := sample(grammar, seed)) is not None]

    for text in written:
        output.read(text)
    assert written or kind in (bytes, pydantic.SecretStr), "strings of any length may grow for ever"
    assert grammar.unheld == []


@pytest.mark.parametrize(
    ("kind", "texts", "refused"),
    [
        (pydantic.NaiveDatetime, ["2026-03-04T10:30:00"], ["2026-03-04T10:30:00Z"]),
        (pydantic.AwareDatetime, ["2026-03-04T10:30:00+01:00"], ["2026-03-04T10:30:00"]),
        (datetime.time, ["07:15:00", "07:15:00.5", "07:15:00Z"], ["24:00:00"]),
        (datetime.date, ["2024-02-29", "2000-02-29"], ["2023-02-29", "1900-02-29", "2026-04-31"]),
        (datetime.timedelta, ["P1D", "PT1H30M", "-PT0.5S"], ["P", "P1DT"]),
        (pydantic.HttpUrl, ["https://a.example/b?c=d"], ["ftp://a.example/"]),
    ],
)
def test_forms(make_tokenizer: Any, kind: Any, texts: list[str], refused: list[str]) -> None:
    """What is usual can be written, and what the type refuses cannot."""
    tokenizer = make_tokenizer()
    grammar = grammar_of(tokenizer, OutputType(kind).schema)

    def allowed(text: str) -> bool:
        ids = [*tokenizer.encode(json.dumps(text)), min(tokenizer.stop_ids)]
        return grammar.constraint().allows(ids) == len(ids)

    assert [text for text in [*texts, *refused] if allowed(text)] == texts


def test_a_model_is_shown_names_of_formats() -> None:
    """Long patterns would be in its way; also where the schema comes from a trace."""
    kind: Any = pydantic.NaiveDatetime
    output = OutputType(kind)

    assert json.loads(output.prompt.partition(": ")[2]) == {"type": "string", "format": "date-time"}
    assert OutputType(output.schema).prompt == output.prompt


class Cat(BaseModel):
    """One kind of pet."""

    lives: int


class Dog(BaseModel):
    """Another one."""

    bark: bool


def kind_of(value: Any) -> str:
    """The tag of a pet."""
    return "cat" if "lives" in value else "dog"


Pet: Any = Annotated[
    Annotated[Cat, Tag("cat")] | Annotated[Dog, Tag("dog")],
    Discriminator(kind_of),
]


def test_a_union_that_a_function_discriminates(make_tokenizer: Any) -> None:
    """It has a grammar, and a note says what that does not hold an answer to."""
    grammar = grammar_of(make_tokenizer(), OutputType(Pet).schema)
    text = sample(grammar, 1)

    assert text is not None
    assert isinstance(TypeAdapter(Pet).validate_json(text), Cat | Dog)
    assert "oneOf" in grammar.notes[0]


def test_an_answer_of_a_schema_is_checked() -> None:
    """A value that its grammar could not exclude is refused, with its place."""
    pytest.importorskip("jsonschema")
    schema = {"properties": {"a": {"not": {"type": "null"}}, "b": {"uniqueItems": True}}}
    output = OutputType(schema)

    assert output.read('{"a": 1, "b": [1, 2]}') == {"a": 1, "b": [1, 2]}
    with pytest.raises(ValueError, match=r"^a: None should not be valid under"):
        output.read('{"a": null}')
    with pytest.raises(ValueError, match=r"^b: an item is there twice"):
        output.read('{"b": [1, 1]}')
    with pytest.raises(ValueError, match="EOF"):
        output.read('{"a": 1')
    with pytest.raises(AgentError, match="not a JSON schema"):
        OutputType({"a": object()})


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_reads_all_that_its_grammar_writes(tokenizer: Tokenizer, kind: Any) -> None:
    """The same with many answers."""
    output = OutputType(kind)
    grammar = grammar_of(tokenizer, output.schema)
    for seed in range(60):
        if (text := sample(grammar, seed)) is not None:
            output.read(text)
