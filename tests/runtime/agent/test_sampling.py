"""How an agent's model picks its tokens: settings, the file's defaults, stop texts, replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, call, conversation_of, run_all

from triplepoint import Agent, Engine, Sampling, TextDelta, Trace
from triplepoint.runtime.engine.sampling.settings import file_sampling
from triplepoint.runtime.replay.replay import verify

HOT = Sampling(temperature=4.0, top_k=50, top_p=0.98, repeat_penalty=1.2, seed=3)
MORE = {
    "xtc": Sampling(4.0, xtc_probability=0.5, xtc_threshold=0.01, top_k=50, min_keep=3, seed=3),
    "dry": Sampling(0.0, dry_multiplier=0.8, dry_sequence_breakers=[": ", "\n"]),
    "dynamic": Sampling(2.0, dynatemp_range=1.5, top_n_sigma=3.0, typical_p=0.9, seed=3),
    "mirostat": Sampling(2.0, mirostat=1, mirostat_tau=3.0, seed=3),
    "mirostat-2": Sampling(4.0, mirostat=2, mirostat_tau=0.5, mirostat_eta=0.3, seed=3),
}


def test_a_stop_text_ends_the_answer(scripted: MakeEngine) -> None:
    """The run is answered; streamed text and answer end before it, and the chat goes on."""
    engine = scripted(f"The disk is full. END of it{END}", f"Yes.{END}")
    agent = Agent(engine, trace=False, sampling=Sampling(stop=["END"]))

    events, result = run_all(agent, "What is it?")
    assert result.status == "answered"
    assert result.answer == "The disk is full."
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "The disk is full."
    assert agent.session.tokens == agent.ledger.ids
    assert agent.run("Really?").answer == "Yes."
    assert agent.trace.header is not None
    assert agent.trace.header.config["sampling"]["stop"] == ["END"]


def test_explicit_before_the_file_before_the_default(scripted: MakeEngine) -> None:
    """Each setting by itself; what comes from the file is told, and is in the trace."""
    engine = scripted(f"a{END}", f"b{END}", f"c{END}")
    engine.sampling = Sampling(temperature=0.6, top_k=20)
    engine.loaded.sampling_notes = [
        "the file's general.sampling.mirostat (3) is out of range and is not used"
    ]
    plain = Agent(engine, trace=False)
    part = Agent(engine, trace=False, sampling=Sampling(top_k=5, seed=1))
    greedy = Agent(engine, trace=False, sampling=Sampling(temperature=0))

    assert (
        plain.setup.notes[0] == "sampling settings from the model file: temperature 0.6, top k 20"
    )
    assert part.setup.notes[0] == "sampling settings from the model file: temperature 0.6"
    assert greedy.setup.notes == engine.loaded.sampling_notes
    used = []
    for agent in (plain, part, greedy):
        agent.run("Hi")
        assert agent.trace.header is not None
        used.append(agent.trace.header.config["sampling"])
    assert [(one["temperature"], one["top_k"]) for one in used] == [(0.6, 20), (0.6, 5), (0, 20)]


@pytest.mark.parametrize(
    ("architecture", "more", "temperature"),
    [
        ("qwen3", {}, 0.6),
        ("qwen3", {"sampling": Sampling(seed=5)}, 0.6),
        ("qwen3", {"sampling": Sampling(temperature=0)}, 0),
        ("qwen3", {"thinking": False}, 0),
        ("qwen3", {"chat_template": "{{ messages[-1].content }}"}, 0),
        ("qwen35", {}, 0),
        ("llama", {}, 0),
    ],
)
def test_what_the_makers_recommend(
    scripted: MakeEngine, architecture: str, more: dict[str, Any], temperature: float
) -> None:
    """It counts while a model thinks of which they say that it must not decode greedily, and where
    nobody sets a temperature; a note names the source, and each decode of the trace has it."""
    engine = scripted("<think>Hm.</think>Hi." + END)
    engine.model.name, engine.model.architecture = "Qwen3 8B", architecture
    template = "{{ messages[-1].content }}<|im_start|>assistant\n{# <think> </think> #}"
    agent = Agent(engine, trace=False, **{"chat_template": template, **more})

    told = [note for note in agent.setup.notes if "the model's makers recommend" in note]
    assert (agent.setup.conversation.settings()["sampling"]["temperature"], len(told)) == (
        temperature,
        int(temperature > 0),
    )
    assert all("huggingface.co/Qwen/Qwen3-8B" in note for note in told)


def test_settings_of_a_file() -> None:
    """What makes sense is taken; what does not is named, and what is not done here."""
    keys: dict[str, Any] = {"temp": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "seed": 9}
    keys |= {"penalty_repeat": 1.05, "penalty_last_n": 64}
    found, notes = file_sampling({f"general.sampling.{key}": v for key, v in keys.items()})
    assert found == Sampling(0.6, 20, 0.95, 0.0, repeat_penalty=1.05, penalty_last=64)
    assert notes == []

    for value in ("hot", float("nan"), -1.0, True, [1], 10**400, {}):
        found, notes = file_sampling({"general.sampling.temp": value})
        assert found == Sampling()
        (note,) = notes
        assert note.startswith("the file's general.sampling.temp (")
    assert file_sampling({"general.sampling.top_k": -1})[0].top_k == 0
    assert file_sampling({"general.sampling.top_k": 2.5})[0].top_k is None
    chance = {"xtc_probability": 0.5, "xtc_threshold": 0.2, "mirostat": 2, "mirostat_tau": 3.0}
    found, notes = file_sampling({f"general.sampling.{key}": v for key, v in chance.items()})
    assert (found, notes) == (Sampling(**chance), [])
    (note,) = file_sampling({"general.sampling.mirostat": 3})[1]
    assert note.startswith("the file's general.sampling.mirostat (3) is out of range")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "app.log").write_text("10:00 start\n10:05 ERROR disk full\n")
    return folder


def _said(folder: Path, trace: Path | bool, threads: int, chunk: int, **settings: Any) -> list[int]:
    with (
        Engine.load("nano", threads=threads, tune={"chunk": chunk}) as engine,
        Agent(
            engine, workspace=folder, trace=trace, max_tokens=80, answer_forms=False, **settings
        ) as agent,
    ):
        list(agent.stream("What's the error in app.log?"))
        list(agent.stream("hello"))
        if trace:
            assert verify(Trace.load(str(trace)), engine).ok
        return list(agent.session.tokens)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_text(folder: Path, tmp_path: Path) -> None:
    """With another number of threads, and read in other chunks; other seeds say other things.

    The run verifies in a replay, penalties and all.
    """
    one = _said(folder, tmp_path / "run.jsonl", 1, 512, sampling=HOT)
    two = _said(folder, False, 2, 32, sampling=HOT)
    others = [
        _said(folder, False, 2, 32, sampling=Sampling(**{**HOT.given(), "seed": seed}))
        for seed in (4, 5, 6, 7)
    ]

    assert one == two
    assert any(one != other for other in others)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_others_give_the_same_text(folder: Path, tmp_path: Path, name: str) -> None:
    """So do the samplers of llama.cpp, whose state a replay builds up again."""
    one = _said(folder, tmp_path / "run.jsonl", 1, 512, sampling=MORE[name])
    assert _said(folder, False, 2, 32, sampling=MORE[name]) == one
    if name != "dry":  # nothing is repeated here
        kinds = [
            (
                Sampling(**{**MORE[name].given(), "seed": seed}),
                Sampling(MORE[name].temperature, seed=seed),
            )
            for seed in range(3, 9)
        ]
        said = [[_said(folder, False, 2, 512, sampling=one) for one in both] for both in kinds]
        assert any(with_it != plain for with_it, plain in said)


def test_calls_are_sampled_under_the_grammar(scripted: MakeEngine, folder: Path) -> None:
    """In a call penalties rest: the constraint says so from the token that opens it."""
    engine = scripted(f"Let me see.{call('read_file', path='app.log')}{END}", f"Full.{END}")
    agent = Agent(engine, workspace=folder, trace=False)
    constraint = conversation_of(agent).grammar.constraint()
    seen = []
    for token in engine.tokenizer.encode(
        f"Let me see.{call('read_file', path='app.log')}{END}", special=True
    ):
        seen.append(constraint.calling)
        constraint.advance(token)
    opening = engine.tokenizer.encode("<tool_call>", special=True)[0]
    at = engine.tokenizer.encode("Let me see.<tool_call>", special=True).index(opening)
    assert seen == [False] * (at + 1) + [True] * (len(seen) - at - 1)
