"""``triplepoint use``: the model that is taken where none is named."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..config import keep_model
from .exit_codes import Exit
from .output import Output


def run(args: argparse.Namespace, output: Output) -> int:
    """See that the model is here, and write it down."""
    from ..inference.engine import resolve_model
    from .load_engine import model_path

    name = args.name
    if not name.startswith(("http://", "https://", "synthetic:")):
        resolve_model(model_path(name, output))
        if (path := Path(name).expanduser()).exists():
            name = str(path.resolve())  # it must mean the same in every folder
    place = keep_model(name)
    output.line(f"the default model is {name} now: {place}")
    output.json({"model": name, "config": str(place)})
    return Exit.OK
