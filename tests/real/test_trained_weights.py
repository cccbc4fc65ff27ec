"""Trained weights: text, templates, saved sessions, company and replay, against outside oracles.

CONTRIBUTING.md says which files these tests need, and where.
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triplepoint import Agent, Engine, LimitReachedError
from triplepoint.runtime.agent.harness.merged import Harness
from triplepoint.runtime.agent.harness.paths import ExistingPaths
from triplepoint.runtime.agent.harness.policy import Context, Decision, Policy
from triplepoint.runtime.conversation.chat import Chat
from triplepoint.runtime.conversation.messages import Message
from triplepoint.runtime.replay.replay import verify
from triplepoint.tools import FileTools, ToolSet
from triplepoint.traces import Trace

pytestmark = pytest.mark.real

PROMPT = "The three states of matter are"
TOKENS = 100
INCIDENT = Path(__file__).parents[2] / "examples" / "incident"
QUESTION = "What's the error in app.log?"  # README's first command


def greedy(
    engine: Engine, prompt: str = PROMPT, tokens: int = TOKENS
) -> tuple[list[int], list[int]]:
    """Ids of the prompt, and of what follows it."""
    ids = engine.tokenizer.encode(prompt)
    with closing(engine.session()) as session:
        session.prefill(ids)
        return ids, list(session.decode(max_tokens=tokens))


def test_greedy_text_is_that_of_transformers(model: Path, oracle: tuple[Any, Any]) -> None:
    """Every one of 100 tokens has the highest logit of the reference, or one within rounding."""
    import torch

    network, tokenizer = oracle
    with Engine.load(model, context=512, kv="f32") as engine:
        ids, said = greedy(engine)
    assert ids == tokenizer.encode(PROMPT)
    with torch.inference_mode():
        logits = network(torch.tensor([ids + said])).logits[0].numpy()
    rows = logits[len(ids) - 1 : len(ids) + len(said) - 1]
    behind = rows.max(axis=-1) - rows[np.arange(len(said)), said]
    assert len(said) == TOKENS
    assert (behind == 0).mean() >= 0.9
    assert behind.max() < 0.01 * np.ptp(rows)


def test_greedy_text_with_a_part_of_the_output_head(model: Path) -> None:
    """The same 100 tokens of each text as with all logits; of a large head less is read."""
    texts = [PROMPT, "def quicksort(items):\n", "| name | size |\n|---|--:|\n", "Am Anfang", "今天"]
    load = partial(Engine.load, model, context=512, draft_tokens=0)
    with load() as part, load(tune={"head_bound": "off"}) as whole:
        read = {part: 0.0, whole: 0.0}
        for text in texts:
            decoded = []
            for engine in read:
                with closing(engine.session()) as session:
                    session.prefill(engine.tokenizer.encode(text))
                    decoded.append(list(session.decode(max_tokens=TOKENS)))
                    assert session.last_phase is not None
                    read[engine] += session.last_phase.bytes
            assert decoded[0] == decoded[1]
        large = whole.loaded.cost.head_bytes > 64 << 20
        assert read[part] < 0.95 * read[whole] if large else read[part] == read[whole]


@pytest.mark.parametrize("tools", [False, True], ids=["chat", "tools"])
def test_prompts_are_those_of_the_models_own_template(
    engine: Engine, oracle: tuple[Any, Any], tools: bool, tmp_path: Path
) -> None:
    """Token for token what `transformers` makes of the template that the file carries."""
    _, tokenizer = oracle
    schemas = ToolSet(FileTools(tmp_path)).schemas() if tools else []
    if tools and "tools" not in (engine.tokenizer.chat_template or ""):
        pytest.skip("the template of this model knows no tools, so there is no reference")
    chat = Chat(engine.tokenizer, tools=schemas)
    messages = [Message("system", "Be brief."), Message("user", QUESTION)]
    ours = [id_ for _, ids in chat.encode(chat.open(messages), first=True) for id_ in ids]
    theirs = tokenizer.apply_chat_template(
        [{"role": one.role, "content": one.content} for one in messages],
        tools=schemas or None,
        chat_template=engine.tokenizer.chat_template,
        add_generation_prompt=True,
        tokenize=False,
    )
    assert engine.tokenizer.decode(ours, special=True) == theirs
    assert ours == tokenizer.encode(theirs, add_special_tokens=False)


def test_a_saved_session_resumes_with_the_same_bits(engine: Engine, tmp_path: Path) -> None:
    """The logits behind a restored cache are those of the session that was saved."""
    ids, _ = greedy(engine)
    with closing(engine.session()) as session:
        session.prefill(ids)
        session.save(tmp_path / "saved")
        session.prefill(ids)
        want = session.logits.copy()
    with closing(engine.load_session(tmp_path / "saved")) as again:
        assert not again.restore_error
        assert again.n_cached >= len(ids) - 1
        again.prefill(ids)
        assert np.array_equal(again.logits, want)


def test_company_changes_no_bit(engine: Engine) -> None:
    """What a sequence decodes beside five others is what it decodes alone."""
    prompts = [f"{PROMPT} {n}" for n in range(6)]
    alone = [greedy(engine, one, 32)[1] for one in prompts]
    sessions = [engine.session() for _ in prompts]
    for session, prompt in zip(sessions, prompts, strict=True):
        session.prefill(engine.tokenizer.encode(prompt))
    decodes = [session.decode(max_tokens=32) for session in sessions]
    together = [list(one) for one in zip(*decodes, strict=True)]
    assert [list(one) for one in zip(*together, strict=True)] == alone
    for session in sessions:
        session.close()


@pytest.fixture(scope="module")
def run(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of README's first question; the smallest model does not come to an end."""
    path = tmp_path_factory.mktemp("run") / "trace.jsonl"
    with (
        Agent(engine, workspace=INCIDENT, max_tokens=256, trace=path) as agent,
        suppress(LimitReachedError),
    ):
        agent.run(QUESTION)
    return path


def test_a_run_is_verified(engine: Engine, run: Path) -> None:
    """Replayed on the same model, every phase samples the same tokens."""
    report = verify(Trace.load(run), engine)
    assert report.ok
    assert report.phases


def test_the_first_question_of_the_readme(run: Path) -> None:
    """The harness lays the line that answers before the model: read, and first of the best."""
    line, trace = "connection to db-2 refused", Trace.load(run)
    looked = [tool.result for tool in trace.tools if tool.by == "harness"]
    assert any(line in result for result in looked)
    (told,) = [m.content for m in trace.turns[0].messages if m.by and m.role == "user"]
    assert line in told.splitlines()[1]


class Looks(Policy):
    """Holds the first reply to calls."""

    def before_turn(self, context: Context) -> Decision | None:
        """See `Policy`."""
        return Decision(calls="required") if context.step == 1 else None


def test_no_call_names_what_is_not_there(engine: Engine, tmp_path: Path) -> None:
    """Nor in the question; and the run verifies once the folder has gone."""
    root, path = tmp_path / "site", tmp_path / "trace.jsonl"
    (root / "logs").mkdir(parents=True)
    (root / "logs" / "journal.log").write_text("10:05 ERROR disk full\n")
    (root / "Notes für Ärzte.md").write_text("The meeting is on Tuesday.\n")
    questions = ("What is the error in the log?", "When is the meeting?", "Which port is used?")
    agent = Agent(
        engine, workspace=root, harness=Harness([Looks(), ExistingPaths()]), trace=path,
        max_steps=2, max_tokens=128,
    )  # fmt: skip
    for question in questions:
        with suppress(LimitReachedError):
            agent.run(question)
    agent.close()
    trace = Trace.load(path)
    said = [one.content for one in agent.messages if one.role == "assistant"]
    named = [path for text in said for path in re.findall(r'"path": "([^"]*)"', text)]
    assert named
    assert all(one == "" or (root / one).exists() for one in named)
    root.rename(tmp_path / "gone")
    assert all(phase.same for phase in verify(trace, engine).phases)
