"""An agent over a Ray Data dataset: each actor of `map_batches` has an engine.

    pip install '.[fleet]' 'ray[data]'
    python examples/ray_data.py

The rows of a batch share the passes of the actor's engine.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import ray

import triplepoint
from triplepoint import Agent, Engine, RemoteEngine


class Asker:
    """Answers batches of rows; Ray creates one per actor."""

    def __init__(self, model: str) -> None:
        self.engine = Engine.load(model, threads=1)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
        pairs = zip(batch["question"], batch["dir"], strict=True)
        rows = [{"question": question, "dir": folder} for question, folder in pairs]
        results = triplepoint.map_rows(agent, rows, engine=self.engine, to="local:4")
        results.sort(key=lambda one: one["row"])  # rows that were set aside come last
        batch["answer"] = np.array([one["answer"] for one in results])
        return batch


def agent(engine: Engine | RemoteEngine, row: dict[str, Any]) -> Agent:
    """Return the agent for a row."""
    return Agent(engine, workspace=row["dir"])


if __name__ == "__main__":
    ray.init(logging_level=logging.ERROR, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    folders = sorted(map(str, Path("examples/tickets").iterdir()))
    rows = [{"question": "What's the error in app.log?", "dir": folder} for folder in folders]
    # A worker runs elsewhere: paths are those of the driver's folder.
    here = Path.cwd()
    data = ray.data.from_items([{**row, "dir": str(here / row["dir"])} for row in rows])
    actors = ray.data.ActorPoolStrategy(size=1)
    done = data.map_batches(Asker, fn_constructor_args=("nano",), batch_size=16, compute=actors)
    for row in sorted(done.take_all(), key=lambda row: row["dir"]):
        print(f"{Path(row['dir']).relative_to(here)}: {row['answer']}")
