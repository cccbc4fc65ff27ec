"""The options of ``triplepoint doctor``."""

from __future__ import annotations

from ..load_engine import MODEL, named
from ..option_groups import OptionGroup, argument, option
from ..removing import YES


class CheckOptions(OptionGroup):
    """What is measured."""

    measure: bool = option(one_of="which")
    """measure the limits again, also by number of threads"""
    agent: bool = option(one_of="which")
    """find the settings of the harness that suit a model file, and keep them for it"""
    model: str | None = option("-m", "MODEL", type=named, help=f"with --agent: {MODEL}")
    minutes: int = option(default=10)
    """with --agent: minutes that it may take"""
    threads: int | None = option("-t")
    """measure with N threads"""


class CacheOptions(OptionGroup):
    """List or clean, and which caches."""

    action: str = argument(nargs="?", choices=("ls", "clean"), default="ls")
    """list the caches, or remove them (default: ls)"""
    kinds: list[str] = argument("KIND", nargs="*")
    """only this kind, by its name in the list"""


OPTIONS = {"check": (CheckOptions,), "cache": (CacheOptions, YES)}
