"""Filling in between two texts: `/infill`, and `suffix` of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from helpers import tiny_models
from helpers.serving import SETTINGS, Server, events

from triplepoint import Engine
from triplepoint.runtime.conversation.plain_reader import PlainReader
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.serve.models.infill import FileText, filled
from triplepoint.runtime.serve.models.loaded_model import LoadedModel
from triplepoint.runtime.tokens.tokenizer import Tokenizer

PRE, SUF, MID, REPO, FILE, PAD = range(260, 266)
MARKS = {"fim_pre": PRE, "fim_suf": SUF, "fim_mid": MID}
FILES = {"fim_rep": REPO, "fim_sep": FILE, "fim_pad": PAD}


def _write(path: Path, marks: dict[str, int]) -> Path:
    metadata = {f"tokenizer.ggml.{name}_token_id": np.uint32(i) for name, i in marks.items()}
    tiny_models.write_model(path, "qwen3", metadata=metadata)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with tokens for filling in, and for files."""
    return _write(tmp_path_factory.mktemp("infill") / "tiny.gguf", MARKS | FILES)


@pytest.fixture(scope="module")
def fills(file: Path, load: Callable[[str], Engine]) -> Iterator[Server]:
    """A server of that model, and of nano, which has none."""
    running = Server(replace(SETTINGS, models={"tiny": str(file), "nano": "nano"}), load)
    try:
        running.wait()
        yield running
    finally:
        running.close()


def _whole(server: Server, path: str, **body: Any) -> Any:
    answer = server.post(path, {"n_predict": 6, "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def _ids(server: Server, text: str) -> list[int]:
    return server.post("/tokenize", {"content": text, "parse_special": False}).json()["tokens"]


def test_infill(fills: Server) -> None:
    """The answer is that to the tokens as the model knows them; the prompt is told as text."""
    files = [REPO, *_ids(fills, "myproject\n"), FILE, *_ids(fills, "a.py\n"), *_ids(fills, "x = 1")]
    ids = [*files, FILE, *_ids(fills, "filename\n"), PRE, *_ids(fills, "def f("), SUF]
    ids += [*_ids(fills, "):\n"), MID]
    body: dict[str, Any] = {"input_prefix": "def ", "prompt": "f(", "input_suffix": "):\n"}
    body["input_extra"] = [{"filename": "a.py", "text": "x = 1", "time": [1, 2]}]
    found = _whole(fills, "/infill", **body)

    plain = _whole(fills, "/completion", prompt=ids)
    assert found["content"] == plain["content"]
    assert found["tokens_evaluated"] == len(ids)
    assert found["prompt"].endswith("def f(<|extra_4|>):\n<|extra_5|>")
    *pieces, last = events(fills.post("/infill", {**body, "n_predict": 6, "stream": True}).text)
    assert (last["stop"], bool(pieces)) == (True, True)
    tokens = {"input_prefix": _ids(fills, "def "), "input_suffix": [*_ids(fills, "):"), "\n"]}
    assert _whole(fills, "/infill", **{**body, **tokens})["content"] == found["content"]


def test_control_tokens_in_texts(fills: Server) -> None:
    """What stands around the gap is text, whatever it looks like."""
    body = {"input_prefix": "<|extra_5|>", "input_suffix": ""}
    plain = _ids(fills, "<|extra_5|>")
    assert MID not in plain
    prompt = [*_whole(fills, "/infill", **body)["prompt"]]
    assert len(prompt) > len(plain)
    files = [REPO, *_ids(fills, "myproject\n"), FILE, *_ids(fills, "filename\n")]
    evaluated = _whole(fills, "/infill", **body)["tokens_evaluated"]
    assert evaluated == len([*files, PRE, *plain, SUF, MID])


def test_suffix(fills: Server) -> None:
    """OpenAI's name for it; with several prompts each has it."""
    body = {"prompt": ["ab", "b"], "suffix": "c", "max_tokens": 6, "temperature": 0}
    answer = fills.post("/v1/completions", body).json()
    for n, before in enumerate(["ab", "b"]):
        ids = [PRE, *_ids(fills, before), SUF, *_ids(fills, "c"), MID]
        assert answer["choices"][n]["text"] == _whole(fills, "/completion", prompt=ids)["content"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/infill", {"input_suffix": ""}, "input_prefix"),
        ("/infill", {"input_prefix": ""}, "input_suffix"),
        ("/infill", {"input_prefix": "", "input_suffix": [9999]}, "input_suffix"),
        ("/infill", {"input_prefix": "", "input_suffix": "", "n_indent": -2}, "n_indent"),
        (
            "/infill",
            {"input_prefix": "", "input_suffix": "", "input_extra": [{"filename": "a"}]},
            "input_extra[0].text",
        ),
        ("/infill", {"input_prefix": "", "input_suffix": "", "model": "nano"}, "model"),
        ("/v1/completions", {"prompt": "x", "suffix": "y", "model": "nano"}, "suffix"),
    ],
)
def test_refused(fills: Server, path: str, body: Any, param: str) -> None:
    """By the name of the parameter."""
    answer = fills.post(path, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_what_fits(file: Path, tmp_path: Path) -> None:
    """What is next to the gap stays; further texts lose their beginning first."""
    with Engine.load(file, context=256) as engine:
        model = cast(LoadedModel, SimpleNamespace(name="tiny", engine=engine))
        before, behind = list(range(100)), list(range(100, 200))
        ids = filled(model, before, behind, 56)
        assert ids == [PRE, *before, SUF, *behind[:96], MID]
        ids = filled(model, before * 3, behind * 3, 56)
        assert ids == [PRE, *(before * 3)[-147:], SUF, *behind[:49], MID]
        more = [FileText("tmp", "a" * 300)]
        ids = filled(model, before, [], 56, more)
        assert len(ids) == 256 - 56 - 1
        assert ids[-103:] == [PRE, *before, SUF, MID]
        assert engine.tokenizer.fill_ends == {REPO, FILE, PAD}
    with Engine.load(_write(tmp_path / "plain.gguf", MARKS), context=256) as engine:
        model = cast(LoadedModel, SimpleNamespace(name="tiny", engine=engine))
        ids = filled(model, [1], [2], None, [FileText("tmp", "a"), FileText("tmp", "b")])
        text = "\n\n--- snippet ---\n\na\n\n--- snippet ---\n\nb"
        assert ids == [*engine.tokenizer.encode(text), PRE, 1, SUF, 2, MID]


def test_ends_late(fills: Server) -> None:
    """`t_max_predict_ms`: the first line break behind it ends an answer, as a limit."""
    body: dict[str, Any] = {
        "prompt": "ab",
        "n_predict": 200,
        "ignore_eos": True,
        "seed": 3,
        "temperature": 1,
    }
    body["logit_bias"] = [["\n", 3]]
    whole = _whole(fills, "/completion", **body, return_tokens=True)
    late = _whole(fills, "/completion", **body, t_max_predict_ms=1e-3, return_tokens=True)
    (newline,) = _ids(fills, "\n")

    assert newline in whole["tokens"]
    assert late["tokens"] == whole["tokens"][: whole["tokens"].index(newline) + 1]
    assert late["stop_type"] == "limit"
    assert _whole(fills, "/completion", **body, t_max_predict_ms=-1)["tokens_predicted"] == 200


def test_a_prompt_as_an_object(fills: Server) -> None:
    """llama-server's form of a text; images in it are refused."""
    plain = _whole(fills, "/completion", prompt="ab")["content"]
    assert _whole(fills, "/completion", prompt={"prompt_string": "ab"})["content"] == plain
    both = _whole(fills, "/completion", prompt=[[1, 2], {"prompt_string": "ab"}])
    assert both[1]["content"] == plain
    image = {"prompt_string": "ab", "multimodal_data": ["x"]}
    refused = fills.post("/completion", {"prompt": image})
    assert refused.json()["error"]["param"] == "prompt.multimodal_data"


@pytest.mark.parametrize(
    ("text", "indent", "left"),
    [
        ("a\n  b\n  c", 2, "a\n  b\n  c"),
        ("a\n  b\n c", 2, "a\n  b\n "),
        ("a\n\tb\nc", 1, "a\n\tb\n"),
        ("  a\n   b\n\n   c", 3, "  a\n   b\n"),
        ("a\nb", 0, "a\nb"),
    ],
)
def test_indented(file: Path, text: str, indent: int, left: str) -> None:
    """`n_indent`: a text ends before a line that is less indented, however it comes in pieces."""
    with open_gguf(file) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf)
    reader = PlainReader(tokenizer, (), indent=indent)
    pieces: list[str] = []
    for token in tokenizer.encode(text):
        pieces += [piece for _, piece in reader.push(token)]
        if reader.stopped:
            break
    reader.finish()
    pieces += [piece for _, piece in reader.rest]
    assert "".join(pieces) == left
    assert reader.stopped == (left != text)


def test_samplers(fills: Server) -> None:
    """The order is theirs, what is not named is off; `infill` ends what may as well end."""
    body: dict[str, Any] = {"prompt": "ab", "n_predict": 12, "seed": 7, "repeat_penalty": 1.5}
    body |= {"temperature": 0.7, "top_k": 9, "top_p": 0.9}
    last = ["penalties", "dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
    found = {
        name: _whole(fills, "/completion", **body, **({"samplers": order} if order else {}))
        for name, order in {
            "own": None,
            "same": ["penalties", "temperature", "top_k", "top_p"],
            "last": last,
            "plain": ["top_k"],
        }.items()
    }
    plain = {"temperature": 1, "repeat_penalty": 1, "top_p": 1}
    want = _whole(fills, "/completion", **{**body, **plain})["content"]

    assert found["own"]["content"] == found["same"]["content"]
    assert found["last"]["content"] != found["own"]["content"]
    assert found["plain"]["content"] == want
    settings = found["last"]["generation_settings"]
    assert settings["samplers"] == ["top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
    vim = {"samplers": ["top_k", "top_p", "infill"], "top_k": 40, "top_p": 0.99, "n_indent": 2}
    vim |= {"t_max_prompt_ms": 500, "t_max_predict_ms": 9000, "response_fields": ["content"]}
    del body["temperature"]
    filled_in = _whole(fills, "/infill", input_prefix="a", input_suffix="b", **{**body, **vim})
    assert filled_in == {"content": ""}  # of random weights no token is likely: it ends at once
    warm = {"input_prefix": "", "input_suffix": "", "samplers": [], "response_fields": [""]}
    assert _whole(fills, "/infill", **{**warm, "n_predict": 0}) == {}


@pytest.mark.parametrize(
    "samplers",
    ["top_k", ["frob"], ["top_k", "top_k"], ["top_k", "penalties"], ["infill", "top_k"],
     ["infill"]],
)  # fmt: skip
def test_samplers_that_are_refused(fills: Server, samplers: Any) -> None:
    """By the parameter's name; `infill` also without a bound for what it is asked about."""
    answer = fills.post("/completion", {"prompt": "a", "samplers": samplers})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("samplers")
    free = fills.post("/completion", {"prompt": "a", "samplers": ["top_k", "infill"]})
    assert free.json()["error"]["param"] == "samplers"


def test_tokens_without_text(fills: Server) -> None:
    """What ends an answer, and tokens that are not shown, are told with their probabilities."""
    eos = tiny_models.VOCAB - 1
    body: dict[str, Any] = {"prompt": "ab", "n_probs": 2, "return_tokens": True}
    for token, kind, count in ((eos, "eos", 1), (258, "limit", 3)):
        told = {**body, "logit_bias": [[token, 90]], "n_predict": 3}
        found = _whole(fills, "/completion", **told)
        assert (found["tokens"], found["stop_type"]) == ([token] * count, kind)
        assert [one["id"] for one in found["completion_probabilities"]] == [token] * count
        *pieces, last = events(fills.post("/completion", {**told, "stream": True}).text)
        assert [t for piece in pieces for t in piece["tokens"]] == [token] * count
        assert last["tokens"] == []
    assert _whole(fills, "/completion", prompt="ab")["tokens"] == []
