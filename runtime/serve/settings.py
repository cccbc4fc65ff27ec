"""The settings of a server, with their defaults and their validation."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...arguments import check_whole, is_number
from ...errors import SettingError

PORT = 11435
KEEP_ALIVE_S = 30 * 60.0
TRACES = ("off", "errors", "all")
"""Values of `trace`: no request leaves a trace, those that fail by our fault or in a pass, or
all."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on one request, and on all requests together."""

    parallel: int = 32
    """Requests that run at once; further ones wait."""
    queue: int = 256
    """Requests that may wait; further ones get 429."""
    body: int = 16 << 20
    """Bytes of a request body."""
    choices: int = 16
    """Answers to one prompt (``n``)."""
    prompts: int = 64
    """Prompts of one request for completions."""
    inputs: int = 2048
    """Texts of one request for embeddings."""
    vector_values: int = 8 << 20
    """Numbers in an answer to a request for embeddings."""
    logprobs: int = 20
    """Likeliest tokens that are returned with each token."""
    stops: int = 16
    """Stop strings of a request."""
    schema: int = 256 << 10
    """Characters of all JSON schemas of a request."""
    tools: int = 256
    """Tools of a request."""
    messages: int = 10_000
    """Messages of a conversation."""
    responses: int = 1000
    """Responses that are stored for each key, for `previous_response_id`; 0: none."""
    response_bytes: int = 64 << 20
    """Bytes of the stored responses of each key."""
    response_age_s: float = 3600.0
    """Seconds after which a stored response without a request for it is dropped."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The configuration of a server.

    Raises:
        SettingError: a setting is invalid; names it.
    """

    models: Mapping[str, str]
    """Name of each model, and its source for `Engine.load`; the default model is loaded at
    startup."""
    host: str = "127.0.0.1"
    """Address on which it listens."""
    port: int = PORT
    """Port on which it listens; 0 takes a free one."""
    default_model: str | None = None
    """Model for requests that name none or an unknown one; None: the first one, and unknown names
    are refused if there are several models."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Further names of models and agents."""
    keys: tuple[str, ...] = field(default=(), repr=False)
    """API keys, any of which opens the server; none: it is open, and must listen on loopback. What
    is computed with one key cannot be observed with another."""
    key_names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Names of keys; keys of the same name share what they compute, such as cached prefixes."""
    operator_keys: tuple[str, ...] = field(default=(), repr=False)
    """Keys that alone open the endpoints that show all requests; they open the rest, too. Empty:
    these endpoints need no other key than the rest."""
    public: tuple[str, ...] = field(default=(), repr=False)
    """System prompts whose prefixes are computed once and shared by all keys."""
    hosts: tuple[str, ...] = ()
    """Further host names that requests may use (header ``Host``); a port given with one is
    ignored."""
    origins: tuple[str, ...] = ()
    """Web origins that may send requests from a browser (header ``Origin``); none by default. Both
    are stored as browsers write them."""
    keep_alive_s: float = KEEP_ALIVE_S
    """Seconds without use after which a model is unloaded; inf: never."""
    memory: int | None = None
    """Bytes that all models together may take; None: what is free at startup."""
    ping_s: float = 15.0
    """Seconds of silence after which a stream gets a comment."""
    programs: bool = True
    """Whether conversations that pause for tools are recognized, and their prefixes kept cached:
    see `programs.py`. A benchmark turns it off for comparison."""
    pooling: str | None = None
    """Pooling of embeddings, whatever the models' files say; see `POOLINGS`."""
    agents: Mapping[str, Path] = field(default_factory=dict)
    """Folders that agents answer questions about, by the agents' names: see `agent_models`."""
    agent_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `Agent` for all agents: ``harness``, ``grounded``."""
    trace: str = "errors"
    """Which requests leave a trace: see `TRACES`."""
    otlp: str | None = None
    """URL of an OpenTelemetry collector for traces; None: none are sent."""
    otlp_metrics: str | None = None
    """URL of an OpenTelemetry collector for metrics; None: none are sent."""
    otlp_period_s: float = 15.0
    """Seconds between two exports of metrics."""
    otlp_content: bool = False
    """Whether spans include questions and answers."""
    trace_folder: Path | None = None
    """Folder of the traces; None: in the user's state folder."""
    trace_bytes: int = 10**9
    """Bytes of all traces in that folder; the oldest are deleted first."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.models:
            raise SettingError("a server needs a model; name one")
        self._check_names()
        check_whole(self.port, "port", SettingError, 0)
        if self.port > 65535:
            raise SettingError(f"port must be at most 65535, not {self.port}")
        for name in ("keep_alive_s", "ping_s", "otlp_period_s"):
            value = getattr(self, name)
            if not is_number(value) or not value > 0:
                raise SettingError(f"{name} must be above 0 seconds, not {value!r}")
        if self.trace not in TRACES:
            raise SettingError(f"trace must be one of {', '.join(TRACES)}, not {self.trace!r}")
        for url, path in ((self.otlp, "traces"), (self.otlp_metrics, "metrics")):
            if url is not None and not re.match(r"https?://[^/\s]", url):
                raise SettingError(f"{url!r} is not a URL such as http://127.0.0.1:4318/v1/{path}")
        for name, folder in self.agents.items():
            if not folder.is_dir():
                raise SettingError(f"the folder of {name}, {folder}, does not exist")
        check_whole(self.trace_bytes, "trace_bytes", SettingError, 1)
        for key in (*self.keys, *self.operator_keys):
            if not (key and key.isascii() and key.isprintable() and " " not in key):
                raise SettingError("a key must be printable ASCII without spaces")
        for name in self.key_names.values():
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
                raise SettingError(
                    "a key's name can have up to 64 letters, digits, '_', '.' and '-'"
                )
        hosts = tuple(map(hostname, self.hosts))
        for given, host in zip(self.hosts, hosts, strict=True):
            if "/" in given or not re.fullmatch(r"[^\s*]+", host):
                raise SettingError(f"{given!r} is not a host name such as models.example")
        origins = tuple(origin.rstrip("/").lower() for origin in self.origins)
        for given, origin in zip(self.origins, origins, strict=True):
            if origin != "null" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s*]+", origin):
                raise SettingError(f"{given!r} is not an origin such as https://chat.example")
        object.__setattr__(self, "hosts", hosts)
        object.__setattr__(self, "origins", origins)
        if not self.keys and not is_loopback(self.host):
            raise SettingError(
                f"other machines can reach {self.host}, so the server needs a key: give "
                "--api-key, or listen on 127.0.0.1"
            )

    def _check_names(self) -> None:
        served, default = [*self.models, *self.agents], self.default_model
        for alias, name in self.aliases.items():
            if not alias or alias in served or name not in served:
                known = ", ".join(served)
                raise SettingError(f"an alias is NEW=MODEL of {known}; not {alias!r}={name!r}")
        if default is not None and default not in self.models:
            raise SettingError(f"default_model must be one of {', '.join(self.models)}: {default}")


def hostname(host: str) -> str:
    """Return a host name without its port, in the form for comparisons; empty if invalid."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def parse_keep_alive(text: str) -> float:
    """Parse a time such as ``30m``, ``2h``, ``90s`` or ``90`` as seconds; ``forever`` and -1: inf.

    Raises:
        SettingError: the text is no duration.
    """
    if text in ("forever", "-1"):
        return math.inf
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not seconds:
        raise SettingError(f"{text!r} is not a time such as 30m, 2h or forever")
    return seconds
