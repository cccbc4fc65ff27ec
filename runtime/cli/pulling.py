"""Downloads a model that a command names, and shows progress and result."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import ModelError
from ..hub.progress import size_text
from .output import Output
from .progress_bars import Bars

if TYPE_CHECKING:
    from ..hub.names import ModelName
    from ..hub.pull import Pulled
    from ..hub.settings import HubSettings


def pull_model(
    name: ModelName, settings: HubSettings, output: Output, *, force: bool, hint: bool = True
) -> str:
    """Pull and describe the model, and return its path; with `hint`, show how to run it.

    Raises:
        ModelError: as in `hub.pull.pull`.
        KeyboardInterrupt: `output.facts` has the size of the partial download.
    """
    from ..hub.model_info import read_model_info
    from ..hub.pull import pull

    with Bars(output, bars=settings.bars) as bars:
        try:
            pulled = pull(name, settings, bars, force=force)
        except KeyboardInterrupt:
            output.facts |= {"file": bars.label, "kept": bars.done, "bytes": bars.total}
            if bars.done:
                output.interruption += (
                    f"; {size_text(bars.done)} of the {size_text(bars.total)} of {bars.label} are "
                    "kept; run the same command to resume"
                )
            raise
    path = str(pulled.paths[0])
    size = size_text(pulled.variant.size)
    how = "pulled" if pulled.fetched else "is here already"
    output.line(f"{pulled.name} {how}: {size}, {path}")
    _tell_older(pulled, settings, output)
    problems: list[str] = []
    try:
        problems = list(read_model_info(pulled.paths[0]).problems)
    except ModelError as error:  # what was pulled is what the repository has, but no good
        problems = [str(error)]
    for problem in problems:
        output.line(f"not supported: {problem}", "yellow")
    if hint and not problems:
        # Whoever named the files: the line is there to be pasted into a shell.
        output.line(f'run it: triplepoint run -m {shlex.quote(str(pulled.name))} "…"')
    output.json(
        {
            "name": str(pulled.name),
            "commit": pulled.commit,
            "paths": [str(one) for one in pulled.paths],
            "bytes": pulled.variant.size,
            "fetched": pulled.fetched,
            "problems": problems,
        }
    )
    return path


def _tell_older(pulled: Pulled, settings: HubSettings, output: Output) -> None:
    """Report the size of older revisions of the same files, and how to remove them."""
    from ..hub.cache import CachedRepo
    from ..hub.names import ModelName

    repo = CachedRepo(settings.cache, pulled.name.repo)
    blobs = {path.resolve() for path in pulled.paths}
    paths = {file.path for file in pulled.variant.files}
    for commit in repo.commits():
        old = [
            f for f in repo.files(commit) if f.path in paths and f.local_path.resolve() not in blobs
        ]
        if old:
            size = size_text(sum(file.size for file in old))
            name = shlex.quote(str(ModelName(pulled.name.repo, commit, pulled.name.selector)))
            output.line(f"an older revision takes {size}; remove it with: triplepoint rm {name}")


@contextmanager
def choices_shown(output: Output) -> Iterator[None]:
    """List the variants to choose from, where it is not clear which one is meant."""
    from ..hub.variants import ChoiceError

    try:
        yield
    except ChoiceError as error:
        for variant in error.variants:
            parts = f" ({variant.shards} parts)" * (variant.shards > 1)
            size = f"{size_text(variant.size):>8}"
            output.line(f"  {variant.quant or '?':<12} {size}  {variant.name}{parts}")
        output.facts["choices"] = [
            {"quant": v.quant, "file": v.name, "bytes": v.size} for v in error.variants
        ]
        raise
