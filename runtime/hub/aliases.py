"""Short names of well-known models, such as ``qwen3:4b``; `models.toml` lists them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..synthetic.shapes import Shape

_FORM = re.compile(r"[a-z0-9.-]+:[a-z0-9.-]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A well-known model.

    Attributes:
        repo, file: where it is on the Hub.
        quant: how its weights are stored, as `synthetic:` names it; of mixtures that it does not
            have, the nearest.
        nbytes: size of the file.
        license: as the Hub names it.
        date: year and month of its release.
        tools: whether it was trained to call tools.
    """

    alias: str
    repo: str
    file: str
    quant: str
    nbytes: int
    license: str
    date: str
    tools: bool
    shape: Shape


@functools.cache
def known_models() -> tuple[KnownModel, ...]:
    """Return all well-known models, in the order of the file: the smallest first."""
    from ..synthetic.shapes import shape_of

    return tuple(
        KnownModel(nbytes=entry.pop("bytes"), shape=shape_of(entry.pop("shape")), **entry)
        for entry in models_toml()["models"]
    )


def models_toml() -> dict[str, Any]:
    """Return the tables of `models.toml`."""
    import tomllib  # where an alias may be meant; most commands name none
    from importlib.resources import files

    text = files(__package__ or "").joinpath("models.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def by_alias(text: str) -> KnownModel | None:
    """Return the model that has this alias, ignoring case; None if there is none."""
    if not _FORM.fullmatch(text):
        return None
    return next((one for one in known_models() if one.alias == text.lower()), None)


def alias_of(repo: str, file: str | None) -> str | None:
    """Return the alias of this file; None if it has none."""
    return next((m.alias for m in known_models() if (m.repo, m.file) == (repo, file)), None)


def near_aliases(text: str) -> list[str]:
    """Suggest aliases similar to an unknown one, for a message."""
    return get_close_matches(text.lower(), [one.alias for one in known_models()], 3, 0.6)
