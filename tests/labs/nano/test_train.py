"""Training: its batches, its checkpoints, and where it begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import triplepoint.runtime.nano
from labs.nano.batches import Encoder, Stage, make_batch
from labs.nano.bpe import Vocabulary
from triplepoint.runtime.gguf.open import open_gguf

torch = pytest.importorskip("torch", reason="training runs in torch")

ROOT = Path(__file__).parents[3]
MODEL = Path(triplepoint.runtime.nano.__file__).with_name("nano.gguf")
STAGE = Stage(1.0, 640, 2, 6)


def encoder() -> Encoder:
    with open_gguf(MODEL) as file:
        return Encoder(Vocabulary.of_gguf(file.metadata))


def test_a_batch_follows_from_its_number() -> None:
    """The same number gives the same batch; more than half of its rows are the assistant's."""
    coder = encoder()
    first, again = make_batch(coder, 5, STAGE), make_batch(coder, 5, STAGE)
    assert first.ids.shape == (2, 640)
    for name in ("ids", "rows", "labels", "weights", "talks"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.ids, make_batch(coder, 6, STAGE).ids)
    assert (first.weights == 1.0).mean() > 0.5


def test_each_conversation_of_a_sequence_stands_alone() -> None:
    """What is computed for its tokens is what would be without the others, at its own places."""
    from labs.nano.judge import load_gguf

    model, tokens = load_gguf(MODEL)
    batch = make_batch(Encoder(tokens), 3, STAGE)
    ids, talks = torch.from_numpy(batch.ids), torch.from_numpy(batch.talks)
    assert talks.max() > 1, "some sequence holds more than one"
    with torch.no_grad():
        whole = model.hidden(ids, None, talks)
        for row in range(STAGE.batch):
            for talk in range(1, int(talks[row].max()) + 1):
                own = (talks[row] == 0) | (talks[row] == talk)
                alone = model.hidden(ids[row][own][None])[0]
                torch.testing.assert_close(whole[row][own], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_other_processes_write_the_same_batches() -> None:
    """With workers the batches come in the order of the steps, as without."""
    from labs.nano.train import Batches

    coder = encoder()
    batches = Batches(coder, workers=1)
    try:
        for step in (7, 8, 9):
            expected = make_batch(coder, step, STAGE)
            assert np.array_equal(batches.get(step, STAGE).ids, expected.ids)
    finally:
        batches.close()


@pytest.mark.slow
def test_training_begins_at_a_file_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The weights that ship are the start; a step changes them; a second trainer has them all."""
    from labs.nano.judge import load_gguf
    from labs.nano.train import Trainer

    torch.set_num_threads(1)
    # bf16 takes a minute where no instruction multiplies it.
    trainer = Trainer(tmp_path, 1.0, again=0.5, gguf=MODEL, narrow=False)
    shipped, _ = load_gguf(MODEL)
    for mine, theirs in zip(trainer.model.parameters(), shipped.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    loss, _ = trainer.update(STAGE)
    assert 0.0 < loss < 5.0
    trainer.save()
    resumed = Trainer(tmp_path, 1.0)
    assert (resumed.step, resumed.tokens, resumed.peak) == (trainer.step, 1280, 0.5)
    assert resumed.corpus == trainer.corpus
    assert Trainer(tmp_path / "other", 1.0, again=0.5, gguf=MODEL).corpus != trainer.corpus
    changed = 0
    for mine, old, start in zip(
        resumed.model.parameters(), trainer.model.parameters(), shipped.parameters(), strict=True
    ):
        assert torch.equal(mine, old)
        changed += not torch.equal(mine, start)
    assert changed > 20
    # A schedule that was stopped goes on under the same command; one that is over is followed by
    # another.
    for elapsed, goes_on in ((30.0, 30.0), (60.0, 0.0)):
        trainer.elapsed = elapsed
        trainer.save()
        resumed = Trainer(tmp_path, 1.0, again=0.5)
        assert (resumed.step, resumed.elapsed, resumed.peak) == (trainer.step, goes_on, 0.5)
        assert resumed.first_step == (trainer.first_step if goes_on else trainer.step)


def test_a_deeper_model_computes_the_same() -> None:
    """Its new layers are there, and change nothing yet; fewer layers are refused."""
    from labs.nano.judge import load_gguf
    from labs.nano.model import grown

    model, _ = load_gguf(MODEL)
    deeper = grown(model, len(model.blk) + 2).eval()
    ids = torch.arange(40)[None]
    with torch.no_grad():
        assert torch.equal(model(ids), deeper(ids))
    assert len(deeper.blk) == deeper.config.layers == len(model.blk) + 2
    with pytest.raises(ValueError, match="layers must be at least"):
        grown(model, 1)


@pytest.mark.slow
def test_training_needs_little() -> None:
    """A machine with a GPU may have torch, numpy, tokenizers and llvmlite (which guards mapped
    files), and nothing else of ours."""
    code = (
        "import sys\n"
        "for name in ('gguf', 'pydantic', 'structlog', 'rich'):\n"
        "    sys.modules[name] = None\n"
        "from labs.nano import judge, train\n"
        f"judge.load_gguf(train.Path({str(MODEL)!r}))\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
