"""``triplepoint doctor config``: what is set, and where it comes from."""

from __future__ import annotations

import argparse
import json
import os

from ....jit import targets
from ....traces.retention import LIMIT
from ...config import KEYS, Setting, config_path, default_model, read_settings
from ...hub.settings import ENDPOINT, HubSettings
from ..output import Output


def run(args: argparse.Namespace, output: Output) -> None:
    """Print each setting, its value and its source."""
    settings = _settings()
    output.line(f"config file: {config_path()}{'' if config_path().exists() else ' (none yet)'}")
    values = {name: one.value for name, one in settings.items()}
    shown = {name: v if isinstance(v, str) else json.dumps(v) for name, v in values.items()}
    names, width = max(map(len, shown)), max(map(len, shown.values()))
    for name, one in settings.items():
        output.line(f"{name:<{names}}  {shown[name]:<{width}}  {one.source}")
    output.json(
        {
            "config": str(config_path()),
            **{name: {"value": one.value, "from": one.source} for name, one in settings.items()},
        }
    )


def _settings() -> dict[str, Setting]:
    hub = HubSettings.from_environ()
    target = targets.chosen().name
    token = _first("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") or "file of `hf auth login`"
    return {
        **{name: Setting(built_in, "built in") for name, (built_in, *_) in KEYS.items()},
        **read_settings(),
        "model": default_model(),
        **({"trace_keep_bytes": Setting(os.environ[LIMIT], LIMIT)} if _first(LIMIT) else {}),
        "target": Setting(target, _first("TRIPLEPOINT_TARGET") or "this CPU"),
        "models": Setting(
            str(hub.cache),
            _first("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
            or "built in",
        ),
        "hub": Setting(hub.address, "built in" if hub.endpoint == ENDPOINT else "HF_ENDPOINT"),
        "token": Setting(*(("set", token) if hub.token else ("none", "built in"))),
    }


def _first(*names: str) -> str | None:
    """Return the first of these environment variables that is set."""
    return next((name for name in names if os.environ.get(name)), None)
