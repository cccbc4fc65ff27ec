"""``triplepoint pull``: get a model from the Hub, checked, and resumable."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..option_groups import OptionGroup, argument, option
from ..output import Output
from ..pulling import choices_shown, pull_model

if TYPE_CHECKING:
    pass


class Options(OptionGroup):
    """The name of the model."""

    name: str = argument("MODEL")
    """alias (see `triplepoint models`), ORG/NAME[:QUANT], ORG/NAME:FILE.gguf, or the URL of a model
    page"""
    force: bool = option()
    """download it even if this version cannot run it"""


def run(args: argparse.Namespace, output: Output) -> None:
    """Pull the model, and show how to run it."""
    from ...hub.names import parse_name
    from ...hub.settings import HubSettings

    with choices_shown(output):
        pull_model(parse_name(args.name), HubSettings.from_environ(), output, force=args.force)
