"""``triplepoint use``: set the default model."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ....errors import ModelError
from ...config import BUILT_IN, keep_model
from ...engine.engine import resolve_model
from ...gguf.open import open_gguf
from ...models import architecture_of
from ...synthetic.write import SyntheticModel
from ..load_engine import is_server, model_path
from ..output import Output


def run(args: argparse.Namespace, output: Output) -> None:
    """Check that the model exists and is valid, and make it the default."""
    name = args.name
    if name.startswith("synthetic:"):
        SyntheticModel.parse(name)
    elif name != BUILT_IN and not is_server(name):
        path = Path(os.path.expanduser(name))
        if os.path.isdir(path):
            raise ModelError(f"{name} is a folder; name a model file")
        with open_gguf(resolve_model(model_path(name, output))) as gguf:
            architecture_of(gguf)
        if os.path.exists(path):
            # It must mean the same in every folder. A link stays: its name says which shard it is.
            name = os.path.abspath(path)
    place = keep_model(name)
    output.line(f"the default model is now {name}, saved in {place}")
    output.json({"model": name, "config": str(place)})
