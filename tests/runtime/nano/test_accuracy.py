"""What the model in this repository answers: held-out cases, and the questions of the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

import triplepoint.runtime.nano
from triplepoint.runtime.nano.corpus import FAMILIES
from triplepoint.runtime.nano.held_out import BANDS, Band, cases

MODEL = Path(triplepoint.runtime.nano.__file__).with_name("nano.gguf")


@pytest.mark.parametrize(("band", "floor"), list(zip(BANDS, (0.8, 0.75, 0.7), strict=True)))
def test_held_out_accuracy_stays_above_its_floor(band: Band, floor: float) -> None:
    """A sample of held-out cases of every family; the whole table is in the model card."""
    torch = pytest.importorskip("torch", reason="the cases are judged in torch")
    from triplepoint.runtime.nano.batches import Encoder
    from triplepoint.runtime.nano.judge import first_miss, load_gguf

    torch.set_num_threads(1)
    model, vocabulary = load_gguf(MODEL)
    encoder = Encoder(vocabulary)
    seen = [case for family in FAMILIES for case in cases(encoder, family, band, 12, 11)]
    right = sum(first_miss(model, case) is None for case in seen)
    assert len(seen) >= 36
    assert right >= floor * len(seen), f"{right} of {len(seen)}"
