"""The arguments of the verbs that get, list and remove models and what else is kept."""

from __future__ import annotations

import argparse
from collections.abc import Callable

DEFAULT_MODEL = "what `triplepoint use` set, else nano"
MODEL = (
    "alias (see `triplepoint models`), ORG/NAME[:QUANT], ORG/NAME:FILE.gguf, or a page's address"
)


def add_models(verb: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add the verbs; `verb` makes the parser of one from its name and summary."""
    pull = verb("pull", "get a model from the Hugging Face Hub")
    pull.add_argument("name", metavar="MODEL", help=MODEL)
    pull.add_argument(
        "--force", action="store_true", help="pull it even if this version cannot run it"
    )

    verb(
        "models",
        "well-known models: whether they fit here, and how fast they will be. The best is the "
        "largest that fits, calls tools, and is predicted to write 8 tokens per second or more",
    )

    use = verb("use", "set the default model")
    use.add_argument("name", metavar="MODEL", help="as after -m; nano is the embedded one")
    verb("config", "what is set, and where it comes from: environment, config file, built in")

    ls = verb("ls", "list the models in the cache")
    ls.add_argument("name", nargs="?", metavar="TEXT", help="only those with TEXT in their name")

    show = verb("show", "a model's architecture, weights, memory, and whether it runs here")
    show.add_argument("name", metavar="MODEL", help="as after -m: a pulled model, file, nano, …")

    rm = verb("rm", "remove models from the cache")
    rm.add_argument("names", nargs="+", metavar="MODEL", help="ORG/NAME (all of it) or with :QUANT")
    _yes(rm)

    cache = verb("cache", "what triplepoint keeps for itself; `cache clean` removes it")
    cache.add_argument(
        "action", nargs="?", choices=("ls", "clean"), default="ls", help="list it (ls), or remove"
    )
    cache.add_argument(
        "kinds", nargs="*", metavar="KIND", help="only this kind, as the list names it"
    )
    _yes(cache)


def _yes(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-y", "--yes", action="store_true", help="do not ask before removing")
