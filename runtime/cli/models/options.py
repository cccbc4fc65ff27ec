"""The options of ``triplepoint models``."""

from __future__ import annotations

from ..load_engine import named
from ..option_groups import OptionGroup, argument, option
from ..removing import YES


class PullOptions(OptionGroup):
    """The name of the model."""

    name: str = argument("MODEL")
    """alias (see `triplepoint models`), ORG/NAME[:QUANT], ORG/NAME:FILE.gguf, or the URL of a model
    page"""
    force: bool = option()
    """download it even if this version cannot run it"""


class LsOptions(OptionGroup):
    """The filter by name."""

    name: str | None = argument("TEXT", nargs="?")
    """list only models with TEXT in their name"""


class ShowOptions(OptionGroup):
    """The name of the model."""

    name: str = argument("MODEL")
    """model, as for -m: a pulled model, a file, nano, …"""


class UseOptions(OptionGroup):
    """The name of the model."""

    name: str = argument("MODEL", type=named)
    """model, as for -m; nano is the embedded one"""


class RmOptions(OptionGroup):
    """The models."""

    names: list[str] = argument("MODEL", nargs="+")
    """ORG/NAME, or ORG/NAME:QUANT for one quantization"""


OPTIONS = {
    "pull": (PullOptions,),
    "ls": (LsOptions,),
    "show": (ShowOptions,),
    "use": (UseOptions,),
    "rm": (RmOptions, YES),
}
