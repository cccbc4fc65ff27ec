"""``triplepoint rm``: remove models from the cache, and nothing else."""

from __future__ import annotations

import argparse
import os
from typing import NamedTuple

from ....errors import ModelError
from ...hub.cache import CachedRepo
from ...hub.find import Found, models_of
from ...hub.names import parse_name
from ...hub.progress import size_text
from ...hub.remove import remove
from ...hub.settings import HubSettings
from ...hub.variants import choose
from ...weights.packed_cache import PackedCopy, copies
from ..exit_codes import Exit
from ..output import Output
from ..pulling import choices_shown
from ..removing import confirmed, report_removed


class _Doomed(NamedTuple):
    """What is removed of one repository."""

    repo: CachedRepo
    models: list[Found]
    packed: list[PackedCopy]  # of these models: without them they are of no use
    unfinished: int  # bytes; they go too where no single model is named


def run(args: argparse.Namespace, output: Output) -> int:
    """List the model files to remove, ask for confirmation, and remove them."""
    settings = HubSettings.from_environ()
    doomed = [_doomed(name, settings, output) for name in args.names]
    for one in doomed:
        for found in one.models:
            output.line(f"{found.name}  {size_text(found.variant.size)}")
        for copy in one.packed:
            output.line(f"{one.repo.repo}, packed copy  {size_text(copy.nbytes)}")
        if one.unfinished:
            output.line(f"{one.repo.repo}, unfinished  {size_text(one.unfinished)}")
    if not confirmed(args, output):
        return Exit.USAGE
    freed = 0
    for one in doomed:
        freed += remove(one.repo, one.models, unfinished=one.unfinished > 0, note=output.note)
        for copy in one.packed:
            if not os.path.exists(copy.model):  # another link may have kept the contents
                copy.remove()
                freed += copy.nbytes
    report_removed([str(found.name) for one in doomed for found in one.models], freed, output)
    return Exit.OK


def _doomed(text: str, settings: HubSettings, output: Output) -> _Doomed:
    name = parse_name(text)
    repo = CachedRepo(settings.cache, name.repo)
    models = models_of(repo, name.revision)
    unfinished = repo.unfinished()
    if name.selector is None and (models or unfinished):
        return _Doomed(repo, models, _packed(models), unfinished)
    if not models:
        raise ModelError(f"{name} is not in {settings.cache}; triplepoint ls lists what is")
    where = f"{repo.repo} in {settings.cache}"
    with choices_shown(output):
        chosen = choose([one.variant for one in models], name.selector, where, whole=False)
    models = [one for one in models if one.variant is chosen]
    return _Doomed(repo, models, _packed(models), 0)


def _packed(models: list[Found]) -> list[PackedCopy]:
    """Find the cached packed weights of these models."""
    files = {str(path.resolve()) for one in models for path in one.paths}
    return [copy for copy in copies() if copy.model in files]
