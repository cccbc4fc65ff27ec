"""``triplepoint ls``: the models in the cache, also those that other programs pulled."""

from __future__ import annotations

import argparse
import time
from typing import Any

from ....errors import ModelError
from ...hub.cache import cached_repos
from ...hub.find import Found, models_of
from ...hub.model_info import read_model_info
from ...hub.progress import size_text
from ...hub.settings import HubSettings
from ..output import Output
from ..tables import plain

_HEAD = ("MODEL", "SIZE", "ARCHITECTURE", "USED", "RUNS")


def run(args: argparse.Namespace, output: Output) -> None:
    """List the models in the cache; only headers are read."""
    settings = HubSettings.from_environ()
    wanted = (args.name or "").lower()
    models, unfinished = [], []
    for repo in cached_repos(settings.cache):
        for found in models_of(repo):
            if wanted in str(found.name).lower():
                models.append(describe(found))
        kept = repo.unfinished()
        if kept and wanted in repo.repo.lower():
            unfinished.append({"repo": repo.repo, "bytes": kept})
    show(models, unfinished, settings, output, args.name)
    output.json({"cache": str(settings.cache), "models": models, "unfinished": unfinished})


def describe(found: Found) -> dict[str, Any]:
    """Return a model's row of the list: name, size, files and whether it runs."""
    variant = found.variant
    known: dict[str, Any] = {
        "name": str(found.name),
        "quant": variant.quant,
        "bytes": variant.size,
        "files": [str(path) for path in found.paths],
        "commit": found.commit,
        "used": max(file.used for file in found.cached),
        "architecture": "",
        "parameters": None,
        "runs": False,
        "problems": [],
    }
    if not variant.complete:
        parts = f"{len(variant.files)} of {variant.shards} parts are here"
        return known | {"problems": [f"{parts}: pull it again"]}
    try:
        facts = read_model_info(found.paths[0])
    except ModelError as error:
        return known | {"problems": [str(error).removeprefix(f"{found.paths[0]}: ")]}
    problems = list(facts.problems)
    return known | {
        "architecture": facts.architecture,
        "parameters": facts.parameters,
        "runs": not problems,
        "problems": problems,
    }


def show(
    models: list[dict[str, Any]],
    unfinished: list[dict[str, Any]],
    settings: HubSettings,
    output: Output,
    name: str | None = None,
) -> None:
    """Print the table, and under it why some models do not run."""
    if not models and not unfinished:
        missing = f"no model with {name!r} in its name" if name else "no models"
        output.line(f"{missing} in {settings.cache}; download one with: triplepoint pull MODEL")
        return
    rows = [
        (
            m["name"],
            size_text(m["bytes"]),
            m["architecture"],
            ago(m["used"]),
            "yes" if m["runs"] else "no",
        )
        for m in models
    ]
    if rows:
        plain(output, _HEAD, rows, words=(0, 2, 3, 4))
    for model in models:
        for problem in model["problems"]:
            output.line(f"{model['name']}: {problem}", "yellow")
    for one in unfinished:
        kept = size_text(one["bytes"])
        output.line(f"{one['repo']}: {kept} of an unfinished download; pull again to resume")


def ago(moment: float) -> str:
    """Format the time since `moment`, roughly."""
    seconds = time.time() - moment
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // size)
        if count > 60 and unit == "day":
            return time.strftime("%Y-%m-%d", time.localtime(moment))
        if count >= 1:
            return f"{count} {unit}{'s' * (count > 1)} ago"
    return "just now"
