"""Loads the engine that the arguments describe."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from .output import Output

if TYPE_CHECKING:
    from ..engine import Engine


def load_engine(args: argparse.Namespace, output: Output) -> Engine:
    """Load the model with the threads, target, KV format and context that were asked for."""
    from ..engine import Engine

    try:
        return Engine.load(
            args.model,
            threads=args.threads,
            target=args.target or os.environ.get("TRIPLEPOINT_TARGET"),
            kv=args.kv or "bf16",
            context=getattr(args, "context", None),
            progress=output.progress.loading,
        )
    finally:
        output.progress.clear()
