"""Models in several files; the parts are written by the `gguf` package."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from helpers.splits import split_gguf

from triplepoint import Engine
from triplepoint.errors import GGUFError, ModelError
from triplepoint.runtime.gguf.open import open_gguf

MakeModel = Callable[[str], Path]


@pytest.fixture
def parts(tiny_model: MakeModel, tmp_path: Path) -> list[Path]:
    """The tiny model in parts of at most fourteen tensors."""
    return split_gguf(tiny_model("q4_0"), tmp_path, "tiny", tensors=14)


def test_parts_read_as_the_whole(parts: list[Path], tiny_model: MakeModel) -> None:
    """Tensors, their bytes and the metadata are those of the file before it was split."""
    assert [path.name for path in parts] == [f"tiny-{n:05}-of-00003.gguf" for n in (1, 2, 3)]
    with open_gguf(tiny_model("q4_0")) as whole, open_gguf(parts[0]) as split:
        assert split.tensors.keys() == whole.tensors.keys()
        for name, info in whole.tensors.items():
            assert (split.tensors[name].shape, split.tensors[name].type) == (info.shape, info.type)
            np.testing.assert_array_equal(split.data(name), whole.data(name))
            split.release(name)
            np.testing.assert_array_equal(split.data(name), whole.data(name))
        assert split.string("general.name") == whole.string("general.name")
        assert split.parts == tuple(parts)
        assert split.nbytes == sum(path.stat().st_size for path in parts)
        digests = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in parts)
        assert split.sha256() == hashlib.sha256(digests.encode()).hexdigest()
        with pytest.raises(ModelError, match="no tensor 'x'"):
            split.data("x")


def test_a_split_model_runs(parts: list[Path], tiny_model: MakeModel) -> None:
    """It gives the logits of the whole file, and knows its size and hash."""
    logits = []
    for path in (tiny_model("q4_0"), parts[0]):
        with Engine.load(path, threads=1) as engine:
            session = engine.session(64)
            session.prefill([1, 2, 3, 4])
            logits.append(np.array(session.logits))
            assert engine.model.nbytes == sum(p.stat().st_size for p in engine.model.parts)
            with open_gguf(path) as file:
                assert engine.model.sha256 == file.sha256()
    np.testing.assert_array_equal(logits[0], logits[1])


def test_another_part_is_not_the_model(parts: list[Path]) -> None:
    """The second part says which file to open."""
    with pytest.raises(ModelError, match=r"part 2 of 3; open tiny-00001-of-00003\.gguf"):
        open_gguf(parts[1])


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    """What is missing is said before anything is loaded."""
    parts[2].unlink()

    with pytest.raises(ModelError, match=r"tiny-00003-of-00003\.gguf is missing"):
        open_gguf(parts[0])


def test_a_renamed_part(parts: list[Path]) -> None:
    """Without the numbers in the name the others cannot be found, and that is said."""
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))

    with pytest.raises(ModelError, match=r"does not end in -00001-of-00003\.gguf"):
        open_gguf(renamed)


def test_parts_that_do_not_belong_together(parts: list[Path]) -> None:
    """A part in the place of another is refused, and so is a tensor that comes twice."""
    second = parts[1].read_bytes()
    shutil.copy(parts[2], parts[1])
    with pytest.raises(GGUFError, match=r"split\.no"):
        open_gguf(parts[0])

    # The number is right, the tensors are those of the third part.
    third = gguf.GGUFReader(parts[2], "r+")
    third.fields["split.no"].parts[-1][0] = 1
    third.data.flush()
    shutil.copy(parts[2], parts[1])
    third.fields["split.no"].parts[-1][0] = 2
    third.data.flush()
    with pytest.raises(GGUFError, match="is also in tiny-00002-of-00003"):
        open_gguf(parts[0])

    parts[1].write_bytes(second)
    with open_gguf(parts[0]) as file:
        file.check_unchanged()
        os.utime(parts[1], ns=(0, 1))
        with pytest.raises(ModelError, match=re.escape(parts[1].name)):
            file.check_unchanged()


def test_a_tensor_too_few(parts: list[Path]) -> None:
    """The first part says how many tensors there are in all."""
    first = gguf.GGUFReader(parts[0], "r+")
    first.fields["split.tensors.count"].parts[-1][0] += 1
    first.data.flush()

    with pytest.raises(GGUFError, match=r"split\.tensors\.count"):
        open_gguf(parts[0])
