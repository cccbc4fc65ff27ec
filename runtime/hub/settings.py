"""Where the Hub is and where models are kept: the variables that all Hugging Face tools share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ENDPOINT = "https://huggingface.co"
_TRUE = ("1", "ON", "YES", "TRUE")


@dataclass(frozen=True, slots=True)
class HubSettings:
    """What the environment says about the Hub.

    Attributes:
        endpoint: address of the Hub, without a slash at its end.
        cache: folder of the cache, ``hub`` in HF_HOME unless HF_HUB_CACHE says otherwise.
        token: sent to the endpoint and to nobody else; None without one.
        offline: whether nothing may be asked of the network.
        symlinks: whether snapshots are links to blobs, as they should be.
        bars: whether progress may be drawn.
        read_s: seconds that the server may be silent.
    """

    endpoint: str
    cache: Path
    token: str | None = None
    offline: bool = False
    symlinks: bool = True
    bars: bool = True
    read_s: float = 10.0

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> HubSettings:
        """Read HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE, …"""
        home = _home(environ)
        cache = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
        return cls(
            endpoint=(environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/"),
            cache=_path(cache) if cache else home / "hub",
            token=_token(environ, home),
            offline=_true(environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE")),
            symlinks=not _true(environ.get("HF_HUB_DISABLE_SYMLINKS")),
            bars=not _true(environ.get("HF_HUB_DISABLE_PROGRESS_BARS")),
            read_s=_seconds(environ.get("HF_HUB_DOWNLOAD_TIMEOUT"), 10.0),
        )


def _home(environ: Mapping[str, str]) -> Path:
    if home := environ.get("HF_HOME"):
        return _path(home)
    return _path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"


def _token(environ: Mapping[str, str], home: Path) -> str | None:
    """The token of the environment, else of the file that a login leaves."""
    token = environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN")
    if not token and not _true(environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        path = environ.get("HF_TOKEN_PATH")
        try:
            token = (_path(path) if path else home / "token").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
    token = "".join((token or "").split())
    # A header can hold no other characters; httpx would say so with the token in its message.
    return token if token and token.isascii() and token.isprintable() else None


def _path(text: str) -> Path:
    return Path(os.path.expandvars(text)).expanduser()


def _true(value: str | None) -> bool:
    return (value or "").upper() in _TRUE


def _seconds(value: str | None, default: float) -> float:
    try:
        return max(1.0, float(value)) if value else default
    except ValueError:
        return default
