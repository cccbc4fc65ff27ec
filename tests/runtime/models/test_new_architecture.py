"""What CONTRIBUTING says of adding an architecture: a short file, and a name in the table."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest
from helpers.tiny_qwen3 import write_tiny

from triplepoint import Engine
from triplepoint.runtime import models
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.hub.model_info import read_model_info
from triplepoint.runtime.models.decoder import Decoder

MODELS = Path(models.__file__).parent
GUIDE = Path(__file__).parents[3] / "CONTRIBUTING.md"


class Afternoon(Decoder):
    """An architecture that differs from the usual one as Qwen3 does."""

    architecture: ClassVar[str] = "afternoon"
    qk_norm: ClassVar = "heads"


def renamed(source: Path, path: Path, architecture: str) -> None:
    """The same file under another architecture's name."""
    with open_gguf(source) as gguf, GGUFWriter(path) as writer:
        old = gguf.string("general.architecture")
        writer.add("general.architecture", architecture)
        for key in gguf.metadata:
            if key != "general.architecture":
                new = re.sub(rf"^{old}\.", f"{architecture}.", key)
                writer.add_stored(new, *gguf.stored(key))
        for name, info in gguf.tensors.items():
            writer.declare(name, info.shape, info.type)
        for name in gguf.tensors:
            writer.write(name, gguf.data(name))


def test_an_architecture_in_two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class with what differs, in a module of its name, and the name in the table: then files are
    read, `show` says that they run, and logits are those of the architecture that it is like."""
    write_tiny(tmp_path / "known.gguf", "q8_0")
    renamed(tmp_path / "known.gguf", tmp_path / "new.gguf", "afternoon")
    assert "'afternoon' is not supported" in read_model_info(tmp_path / "new.gguf").problems[0]

    module = ModuleType(f"{models.__name__}.afternoon")
    module.Afternoon = Afternoon  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(models.ARCHITECTURES, "afternoon", "Afternoon")

    assert read_model_info(tmp_path / "new.gguf").problems == ()
    logits = []
    for name in ("known", "new"):
        with Engine.load(tmp_path / f"{name}.gguf", threads=1) as engine:
            session = engine.session()
            session.prefill([1, 2, 3, 4, 5])
            logits.append(session.logits.copy())
    np.testing.assert_array_equal(*logits)


def test_the_guide_names_short_files() -> None:
    """Those that it calls short are about as short as it says, and no architecture's is long."""
    said = re.findall(r"`(\w+)\.py` \((\d+)(?: lines)?\)", GUIDE.read_text())
    found = {name: int(lines) for name, lines in said}
    assert found.keys() == {"olmo2", "laguna"}
    lines = {path.stem: len(path.read_text().splitlines()) for path in MODELS.glob("*.py")}
    for name, about in found.items():
        assert abs(lines[name] - about) <= 3
    names = [name.replace("-", "_") for name in models.ARCHITECTURES]
    assert {name: lines[name] for name in names if lines[name] > 160} == {}


def test_the_files_that_the_guide_names() -> None:
    """Every path in it is there."""
    text = GUIDE.read_text()
    root = GUIDE.parent
    paths = re.findall(r"`((?:jit|runtime|tests|docs|tools|traces)/[\w./]+)`", text)
    assert len(paths) > 8
    assert [path for path in paths if not (root / path).exists()] == []
