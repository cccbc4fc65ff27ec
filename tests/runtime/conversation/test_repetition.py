"""Replies that do nothing but repeat themselves are ended, and nothing else is."""

from __future__ import annotations

import base64
import csv
import io
import random
import sysconfig
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import agents
from helpers.agents import END, MakeEngine

from triplepoint import Agent, Engine, LimitReachedError, Trace, tool
from triplepoint.runtime.agent.events import Notice
from triplepoint.runtime.conversation.repetition import (
    LOOK_BACK,
    LOOSE,
    MAX_LOOP,
    Repetition,
    RepetitionStop,
    Words,
)
from triplepoint.runtime.engine.engine import NANO
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.replay.replay import verify
from triplepoint.runtime.tokens.tokenizer import Tokenizer

RULE = "The error is: " + "=" * 900
FAILURES = (
    RULE,
    "Line 5 says: " + "-" * 900,
    "= " + "=" * 900,
    "    foo(\n    " + "^" * 900,
    "The folder holds: app.log, data-000.txt, " + "data-023.txt, " * 70,
    'Line 90 says: request 1089 - - "time 1089 - 1089 - ' + "2089 - " * 150,
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "40' + " ms" * 400,
    "The folder holds: worker-1.log, " + "worker-19.log, worker-22.log, " * 30,
)
"""What the embedded model did on files as real machines have them, before this was noticed."""


@pytest.fixture(scope="module")
def nano() -> Tokenizer:
    """The embedded model's tokenizer, which cuts text finely."""
    with open_gguf(NANO) as file:
        return Tokenizer.from_gguf(file)


def real_texts() -> Iterator[tuple[str, str]]:
    """Yield names and texts: the standard library's sources, and data made of them."""
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = sorted(library.glob("*.py"))
    yield from ((path.name, read(path)) for path in sources)
    yield from ((p.name, read(p)) for p in sorted((library / "encodings").glob("*.py"))[::4])
    code = b"".join(path.read_bytes() for path in sources[:8])[:120_000]
    yield "base64 of sources", base64.encodebytes(code).decode()
    yield "base64 of compressed", base64.b64encode(zlib.compress(code)).decode()
    rows = (f"{n:08x}  {code[n : n + 16].hex(' ')}\n" for n in range(0, 60_000, 16))
    yield "hex dump", "".join(rows)
    table = io.StringIO()
    stats = [(path.name, path.stat()) for path in sources]
    csv.writer(table).writerows(
        (n, name, s.st_size, s.st_mtime) for n, (name, s) in enumerate(stats)
    )
    yield "CSV", table.getvalue()
    yield "listing", "\n".join(f"-rw-r--r-- 1 root root {s.st_size:9} {name}" for name, s in stats)
    yield (
        "log",
        "\n".join(
            f"2026-03-14 09:{n // 60 % 60:02}:{n % 60:02} INFO read {name}: {s.st_size} bytes"
            for n, (name, s) in enumerate(stats)
        ),
    )
    yield "rules", f"{'=' * 120}\na\n{'-' * 120}\nb\n|{'---|' * 30}\nc\n{'*' * 100}\n"


def read(path: Path) -> str:
    """Return the text of a file, its first 400 kB."""
    return path.read_bytes()[:400_000].decode("utf-8", "replace")


def ended_at(ids: list[int], context: str = "", decode: Any = None) -> int | None:
    """After how many tokens a reply would be ended; None: not at all."""
    stop = RepetitionStop(decode or (lambda ids: "".join(map(chr, ids))), lambda: [context])
    return next((n for n, token in enumerate(ids, 1) if stop.push(token)), None)


@pytest.mark.parametrize("period", [1, 2, 3, 7, 31, 32, 63, 64])
def test_a_loop_is_noticed_within_150_tokens(period: int) -> None:
    """Of any period up to 64, behind other tokens, counted from where the loop begins."""
    before = list(range(1000, 1037))
    found = ended_at(before + [n % period for n in range(600)])

    assert found is not None
    assert found - len(before) <= 150


def test_what_is_new_now_and_then_is_no_loop() -> None:
    """A longer loop, one with a new token in every round, and a short one go on."""
    assert ended_at([n % (LOOK_BACK + 1) for n in range(2000)]) is None
    assert ended_at([n if n % 50 == 0 else n % 50 for n in range(100, 2000)]) is None
    assert ended_at([0] * (MAX_LOOP - 1)) is None


def test_what_has_nothing_new_and_is_no_loop_is_ended_later() -> None:
    """A walk between two names, as of files that are not there."""
    names = [[10 * k + n for n in range(6)] for k in range(2)]
    chance = random.Random(1)
    walk = [token for _ in range(200) for token in chance.choice(names)]
    found = ended_at(walk)
    assert found is not None
    assert LOOSE < found < len(walk)


def test_its_length_is_counted_from_its_first_token() -> None:
    """Also where it begins anew."""
    found = Repetition()
    assert [found.push(7) for _ in range(9)][-1] == 9
    assert found.ids == [7] * 9
    assert found.push(8) == 0
    assert found.ids == []


@pytest.mark.parametrize("text", FAILURES, ids=lambda text: text[:24])
def test_known_failures_are_caught(nano: Tokenizer, text: str) -> None:
    """Each of them, within 200 tokens of a reply that ran to its limit of 1,024."""
    ids = nano.encode(text)
    found = ended_at(ids, "the question", nano.decode)
    assert found is not None
    assert found < 200 < len(ids)


@pytest.mark.slow
def test_real_text_is_never_ended(nano: Tokenizer) -> None:
    """Sources, tables, base64, dumps, CSV, listings, logs, rules: no false alarm, with room."""
    found = list(real_texts())
    for name, text in found[::4] + found[-7:]:
        reply, longest = Repetition(), 0
        for token in nano.encode(text):
            longest = max(longest, reply.push(token))
            assert not reply.hopeless, name
        assert longest < MAX_LOOP, name  # so far there is room


def test_a_copy_is_ended_where_it_stops_being_one(nano: Tokenizer) -> None:
    """What the context has may be written, also escaped and without line numbers; no more."""
    zeros = "\n".join(["0,0,0,0,0,0"] * 60)
    numbered = "\n".join(f"{n:3}\t{line}" for n, line in enumerate(zeros.split("\n"), 1))
    escaped = zeros.replace("\n", "\\n")
    for context, text in ((zeros, zeros), (numbered, zeros), (numbered, escaped)):
        ids = nano.encode(text)
        assert len(ids) > 3 * MAX_LOOP
        assert ended_at(ids, context, nano.decode) is None
        loop = nano.encode((text + text[len(text) - 12 :] * 50)[: 3 * len(text)])
        found = ended_at(loop, context, nano.decode)
        assert found is not None
        assert found <= len(ids) + 150
    assert ended_at(nano.encode(zeros), "0,0,0,0,0,0\n" * 5, nano.decode) is not None


def test_an_answer_ends_with_a_notice(scripted: MakeEngine, folder: Path, tmp_path: Path) -> None:
    """It is answered, said, traced, and the conversation can go on; the run verifies."""
    path = tmp_path / "t.jsonl"
    with Agent(scripted(RULE, "Fine." + END), workspace=folder, harness=False, trace=path) as agent:
        events = list(agent.stream("What is it?"))
        result = agent.last_result
        assert result is not None
        assert result.status == "answered"
        assert result.answer.startswith("The error is: ====")
        assert result.usage.output_tokens < 200
        notices = [event.message for event in events if isinstance(event, Notice)]
        assert (
            f"the model repeated itself for {MAX_LOOP} tokens, so its reply was stopped" in notices
        )
        assert agent.run("And now?").answer == "Fine."
    trace = Trace.load(path)
    assert [p.finish_reason for p in trace.phases if p.phase == "decode"] == ["repetition", ""]
    assert trace.header is not None
    assert trace.header.config["repetition_stop"] is True
    assert verify(trace, scripted(RULE, "Fine." + END)).ok


def test_it_can_be_turned_off(scripted: MakeEngine, folder: Path) -> None:
    """Then a reply goes on to its limit, as it always did."""
    with Agent(
        scripted(RULE),
        workspace=folder,
        harness=False,
        trace=False,
        repetition_stop=False,
        max_tokens=300,
    ) as agent:
        with pytest.raises(LimitReachedError, match="cut after 300 generated tokens"):
            agent.run("What is it?")
        assert not any(phase.finish_reason for phase in agent.trace.phases)
        assert not agent.fork(trace=False).setup.config.repetition_stop


def test_a_call_is_refused_and_the_model_told_once(scripted: MakeEngine, folder: Path) -> None:
    """It does not run; the next reply counts; a second such call ends the run."""
    bad = agents.call("read_file", path="40" + " ms" * 400)
    engine = scripted(bad, agents.call("read_file", path="app.log") + END, "Done." + END)
    with Agent(engine, workspace=folder, harness=False, trace=False) as agent:
        assert agent.run("What is it?").answer == "Done."
        assert [call.arguments for call in agent.trace.tools] == [{"path": "app.log"}]
        told = [m.content for m in agent.messages if m.role == "user"]
        assert told[1].startswith("That tool call repeated itself")
        assert agent.session.tokens == agent.ledger.ids
        decodes = [p for p in agent.trace.phases if p.phase == "decode"]
        assert [p.finish_reason for p in decodes] == ["repetition", "", ""]
        assert decodes[0].purpose == "tool_call"
        assert decodes[0].tokens < 250
    with (
        Agent(scripted(bad, bad), workspace=folder, harness=False, trace=False) as agent,
        pytest.raises(LimitReachedError, match="a tool call, which was not run, was stopped"),
    ):
        agent.run("What is it?")


def test_thinking_that_repeats_itself_ends_the_run(scripted: MakeEngine, folder: Path) -> None:
    """There is no answer to give then."""
    said = "<think>\n" + "Hmm, let me see. " * 100
    with (
        Agent(scripted(said), workspace=folder, harness=False, trace=False) as agent,
        pytest.raises(LimitReachedError, match="the thinking was stopped"),
    ):
        agent.run("What is it?")


def test_a_table_is_copied_into_a_file(scripted: MakeEngine, folder: Path) -> None:
    """What a tool gave may be written by another, however much it repeats itself."""
    zeros = "0,0,0,0\n" * 80
    (folder / "zeros.csv").write_text(zeros)
    written = []

    @tool(effect="write")
    def save(text: str) -> str:
        """Save a text."""
        written.append(text)
        return "saved"

    engine = scripted(
        agents.call("read_file", path="zeros.csv") + END,
        agents.call("save", text=zeros.rstrip()) + END,
        "Done." + END,
    )
    with Agent(
        engine,
        workspace=folder,
        harness=False,
        tools=save,
        policy="yes",
        trace=False,
        max_tokens=4000,
    ) as agent:
        assert agent.run("Copy it").answer == "Done."
    assert written == [zeros.rstrip()]


@pytest.mark.slow
def test_the_embedded_model_on_a_report_with_long_rules(tmp_path: Path) -> None:
    """Whatever it says, no reply is longer than a repetition may be; each run verifies."""
    rule = "=" * 78
    (tmp_path / "report.txt").write_text(
        f"Report\n{rule}\nmodule a: ok\nmodule b: FAILED\n{rule}\n    foo(\n{'^' * 72}\n{rule}\n"
    )
    with Engine.load("nano") as engine:
        for question in ("What is in report.txt?", "What is line 2 of report.txt?"):
            with Agent(engine, workspace=tmp_path, harness=False, trace=False) as agent:
                for _ in agent.stream(question):
                    pass
                assert all(p.tokens < 400 for p in agent.trace.phases if p.phase == "decode")
                assert verify(agent.trace, engine).ok


def test_a_word_without_end() -> None:
    """Such as base64 in small pieces: in linear time, as it was, and a loop within it is seen."""
    words, stop = Words(), Repetition()
    began = time.process_time()
    ids = [number for _ in range(10_000) for number in words.push("abcd")]
    took = time.process_time() - began

    assert words.decode(ids) == "abcd" * (len(ids) * 8)
    assert len(ids) == 10_000 * 4 // 32 - 1  # the last part may go on
    assert took < 1.5
    assert any(stop.push(number) and stop.hopeless for number in ids)
