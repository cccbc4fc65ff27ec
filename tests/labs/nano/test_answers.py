"""The forms in nano's file: everything it is trained to answer fits, and it is held to them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from labs.nano.answers import FORMS
from labs.nano.chatml import round_segments
from labs.nano.corpus import rounds
from triplepoint import Agent, Engine
from triplepoint.runtime.conversation import answer_forms
from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.grammar import tag_ids
from triplepoint.runtime.conversation.matcher_tables import matcher_tables


@pytest.mark.slow
def test_every_answer_of_the_corpus_has_one_of_the_forms(engine: Engine) -> None:
    """Of all families, after the questions and results of the conversation."""
    from llguidance import LLMatcher

    tables, seen = matcher_tables(engine.tokenizer), Counter[str]()
    tokenizer = engine.tokenizer
    form = FORMATS["hermes"]
    tags = tag_ids(tokenizer, form.tags)
    for seed in range(12):
        before: list[int] = []
        for item in rounds(seed, 12, size=9):
            *asked, answer, end, between = round_segments(item)
            before += tokenizer.encode_parts([(part.text, part.control) for part in asked])
            rules = answer_forms.rules(
                FORMS, answer_forms.read_evidence(tokenizer, before, form, tags)
            )
            matcher = LLMatcher(tables, f"start: answer\n{rules}", log_level=0)
            assert not matcher.is_error(), matcher.get_error()
            ids = tokenizer.encode(answer.text)
            assert matcher.validate_tokens(ids) == len(ids), item
            matcher.consume_tokens(ids)
            assert matcher.is_accepting(), item
            seen[item.family] += 1
            before += tokenizer.encode_parts([(p.text, p.control) for p in (answer, end, between)])
    assert len(seen) > 10


def test_the_file_has_them(engine: Engine) -> None:
    """The weights that ship are held to the forms of this version, and a trace says so."""
    assert engine.tokenizer.answer_forms == FORMS
    for held in (True, False):
        header = Agent(engine, trace=False, answer_forms=held).run("Hello!").trace.header
        assert header is not None
        assert header.config["answer_forms"] is held


def test_nothing_is_invented(engine: Engine, tmp_path: Path) -> None:
    """Names that no training has seen are quoted letter by letter, or not at all."""
    (tmp_path / "qxzv.log").write_text("ok\nERROR: zqxj wvbnm at ßpłork 0xDEADBEEF77\nok\n")
    agent = Agent(engine, workspace=tmp_path, trace=False)
    answer = agent.run("What's the error in qxzv.log?").answer
    assert answer.removeprefix("The error is: ") in (tmp_path / "qxzv.log").read_text()
