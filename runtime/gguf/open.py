"""Open a model: one GGUF file, or all the files that it was split into."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import ModelError
from .file import GGUFFile
from .split import SplitGGUFFile

_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def open_gguf(path: str | Path) -> GGUFFile:
    """Map the file at `path` and check its header; the other parts too if it is split.

    Raises GGUFError when the file is damaged and ModelError when it cannot be opened.
    """
    file = GGUFFile.open_one(path)
    return _join(file) if "split.count" in file.metadata else file


def parts_of(path: Path) -> list[Path]:
    """Return the paths of all parts of a model from one; only itself if its name has no numbers."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return [path]
    stem, count = match["stem"], match["count"]
    return [path.with_name(f"{stem}-{n:05}-of-{count}.gguf") for n in range(1, int(count) + 1)]


def _join(first: GGUFFile) -> GGUFFile:
    """Return the whole model of which `first` is a part: itself, or a `SplitGGUFFile`.

    Raises:
        ModelError: it is not the first part, or another one is missing.
        GGUFError: the parts do not belong together.
    """
    count = first.integer("split.count", 1, low=0, high=99_999)
    if count <= 1:
        return first
    number = first.integer("split.no", 0, high=count - 1)
    paths = parts_of(first.path)
    if len(paths) != count or paths[number] != first.path:
        raise ModelError(
            f"{first.path} is part {number + 1} of {count} of a model, but its name does not end "
            f"in -{number + 1:05}-of-{count:05}.gguf, so the other parts cannot be found; rename "
            "it back"
        )
    if number:
        raise ModelError(f"{first.path} is part {number + 1} of {count}; open {paths[0].name}")
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelError(
            f"{first.path} is part 1 of {count} of a model; {', '.join(missing[:3])}{more} "
            f"{'is' if len(missing) == 1 else 'are'} missing in the same folder"
        )
    return SplitGGUFFile([first, *(_part(path, n, count) for n, path in enumerate(paths) if n)])


def _part(path: Path, number: int, count: int) -> GGUFFile:
    """Open part `number` (from 0) and check that it is that part."""
    part = GGUFFile.open_one(path)
    for key, expected in (("split.count", count), ("split.no", number)):
        found = part.integer(key, low=0, high=99_999)
        if found != expected:
            part.refuse(key, f"{found}, the first part and the name say {expected}")
    return part
