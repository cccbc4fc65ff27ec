"""Blocks that only draft: names and values as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers import tiny_mtp

from triplepoint.errors import ModelError
from triplepoint.runtime.cli.models.show import show
from triplepoint.runtime.convert.mapping import CheckpointMapping, map_checkpoint
from triplepoint.runtime.hub.model_info import read_model_info


def _mapped(name: str) -> tuple[CheckpointMapping, dict[str, np.ndarray], dict[str, np.ndarray]]:
    weights = tiny.checkpoint(name) | tiny_mtp.weights(name)
    mapping = map_checkpoint(tiny.config_of(name), list(weights))
    made = {t.name: t.make([weights[source] for source in t.sources]) for t in mapping.tensors}
    return mapping, weights, made


@pytest.mark.parametrize("name", tiny_mtp.NAMES)
def test_names(name: str) -> None:
    """The block is the layer behind the last, with its own four tensors, and is counted."""
    mapping, weights, made = _mapped(name)
    a, layers = mapping.architecture, tiny.config_of(name)["num_hidden_layers"]
    attending = max(
        int(t.split(".")[1]) for t in made if t.endswith(("attn_q.weight", "attn_q_b.weight"))
    )

    assert not mapping.unused
    assert attending == layers
    assert mapping.metadata[f"{a}.block_count"] == layers + 1
    assert mapping.metadata[f"{a}.nextn_predict_layers"] == 1
    own = {t.split(".", 2)[2] for t in made if t.startswith(f"blk.{layers}.nextn.")}
    assert own == {f"nextn.{part}.weight" for part in
                   ("eh_proj", "enorm", "hnorm", "shared_head_norm")}  # fmt: skip
    source = "model.layers.3.eh_proj.weight" if a == "deepseek2" else "mtp.fc.weight"
    assert np.array_equal(made[f"blk.{layers}.nextn.eh_proj.weight"], weights[source])


def test_norms_have_the_one_that_the_model_adds() -> None:
    """All of Qwen's do, also those whose names in the checkpoint end otherwise than norms'."""
    _, weights, made = _mapped("qwen35")
    for part, source in (
        ("enorm", "pre_fc_norm_embedding"),
        ("hnorm", "pre_fc_norm_hidden"),
        ("shared_head_norm", "norm"),
    ):
        assert np.array_equal(
            made[f"blk.5.nextn.{part}.weight"], weights[f"mtp.{source}.weight"] + 1
        )


@pytest.mark.parametrize(
    ("name", "lacking"), [("qwen35", "mtp.layers.0.self_attn.k_proj.weight"),
                          ("qwen35", "mtp.pre_fc_norm_hidden.weight"),
                          ("glm4-flash", "model.layers.3.hnorm.weight")]
)  # fmt: skip
def test_a_block_in_part_is_refused(name: str, lacking: str) -> None:
    """It says what is missing."""
    names = [n for n in (tiny.checkpoint(name) | tiny_mtp.weights(name)) if n != lacking]
    with pytest.raises(ModelError, match=r"lacks what blk\.\d\..* would be made from"):
        map_checkpoint(tiny.config_of(name), names)


def test_show_says_what_becomes_of_it(tmp_path: Path) -> None:
    """A head that is used, one that is not in the file, one that is not understood, none."""
    path, found = tmp_path / "model.gguf", []
    tiny_mtp.write_model(path, "qwen35")
    facts = read_model_info(path)
    found.append(facts.mtp)
    lines: list[str] = []

    class Lines:
        def line(self, text: str, style: str = "") -> None:
            lines.append(text)

    show(facts, Lines())  # pyright: ignore[reportArgumentType]
    tiny_mtp.write_model(path, "qwen35", drop="blk.5.")
    found.append(read_model_info(path).mtp)
    tiny.write_model(
        path,
        "qwen3",
        metadata={"qwen3.nextn_predict_layers": 1},
        copies={"blk.2.nextn.eh_proj.weight": "blk.0.attn_q.weight"},
    )
    found.append(read_model_info(path).mtp)
    tiny.write_model(path, "qwen35")
    found.append(read_model_info(path).mtp)

    assert found == ["used", "missing", "left out", ""]
    assert any("draft layer" in line and "MTP head" in line for line in lines)
