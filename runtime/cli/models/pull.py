"""``triplepoint pull``: get a model from the Hub, checked, and resumable."""

from __future__ import annotations

import argparse

from ...hub.names import parse_name
from ...hub.settings import HubSettings
from ..output import Output
from ..pulling import choices_shown, pull_model


def run(args: argparse.Namespace, output: Output) -> None:
    """Pull the model, and show how to run it."""
    with choices_shown(output):
        pull_model(parse_name(args.name), HubSettings.from_environ(), output, force=args.force)
