"""Loads the engine that the arguments describe."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from .output import Output

if TYPE_CHECKING:
    from ..engine import Engine
    from ..remote import RemoteEngine


def load_model(args: argparse.Namespace, output: Output) -> Engine | RemoteEngine:
    """The model of an agent: loaded here, or in another server when its name is an address.

    ``http://localhost:8080/v1`` takes the server's first model, ``…/v1#NAME`` the one of that name.
    """
    if not args.model.startswith(("http://", "https://")):
        return load_engine(args, output)
    from ..remote import RemoteEngine
    from ..remote.engine import CONTEXT

    address, _, name = args.model.partition("#")
    key = os.environ.get("TRIPLEPOINT_API_KEY")
    return RemoteEngine(
        address, model=name or None, api_key=key, context=args.context or CONTEXT
    )


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
