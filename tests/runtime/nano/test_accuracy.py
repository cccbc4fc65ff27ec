"""What the model in this repository answers: held-out cases of every family, in new phrasings.

The tables are in the model card. The questions of the documents are in test_documents.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import triplepoint.runtime.nano
from labs.nano.held_out import BANDS, EVALUATED, Band, cases

MODEL = Path(triplepoint.runtime.nano.__file__).with_name("nano.gguf")


FLOORS = [
    pytest.param(band, floor, marks=[pytest.mark.exhaustive] if band is BANDS[1] else [])
    for band, floor in zip(BANDS, (0.5, 0.35, 0.22), strict=True)
]


@pytest.mark.slow
@pytest.mark.parametrize(("band", "floor"), FLOORS)
def test_held_out_accuracy_stays_above_its_floor(band: Band, floor: float) -> None:
    """A sample of held-out cases; the tables are in the model card."""
    torch = pytest.importorskip("torch", reason="the cases are judged in torch")
    from labs.nano.batches import Encoder
    from labs.nano.judge import first_miss, load_gguf

    torch.set_num_threads(1)
    model, vocabulary = load_gguf(MODEL)
    encoder = Encoder(vocabulary)
    seen = [case for family in EVALUATED for case in cases(encoder, family, band, 4, 11)]
    right = sum(first_miss(model, case) is None for case in seen)
    assert len(seen) >= 12
    assert right >= floor * len(seen), f"{right} of {len(seen)}"
