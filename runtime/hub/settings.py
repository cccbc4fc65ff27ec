"""The Hub's address and the cache folder, from the variables of all Hugging Face tools."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...arguments import read_own
from ...errors import SettingError

ENDPOINT = "https://huggingface.co"
_TRUE = ("1", "ON", "YES", "TRUE")
_LONGEST = 86400.0  # seconds to wait; more than sockets can be told is an error of theirs


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Settings of the Hub from the environment.

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

    @property
    def address(self) -> str:
        """The endpoint for messages: without a password before the host."""
        return re.sub(r"(?<=//)[^/]*@", "", self.endpoint)

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
    """Return the token of the environment, else of the file that a login writes."""
    token = environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN")
    if not token and not _true(environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        path = environ.get("HF_TOKEN_PATH")
        try:
            token = read_own(_path(path) if path else home / "token").decode()
        except (OSError, UnicodeDecodeError):
            return None
    token = "".join((token or "").split())
    # A header can hold no other characters; httpx would say so with the token in its message.
    return token if token and token.isascii() and token.isprintable() else None


def _path(text: str) -> Path:
    path = Path(os.path.expandvars(text))
    try:
        return path.expanduser()
    except RuntimeError as error:  # no user of that name, or none of this number without HOME
        raise SettingError(
            f"there is no home folder for {path}; set HOME, or absolute paths as HF_HOME and "
            "HF_HUB_CACHE"
        ) from error


def _true(value: str | None) -> bool:
    return (value or "").upper() in _TRUE


def _seconds(value: str | None, default: float) -> float:
    try:
        return min(max(1.0, float(value)), _LONGEST) if value else default
    except ValueError:
        return default
