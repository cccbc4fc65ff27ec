"""Converts folder files, each a folder with questions, to tasks of a suite.

A question is right when its facts are in the answer and nothing in it is invented; see
`suite_files` for the form and `verdict` for the rules.
"""

from __future__ import annotations

import glob
import hashlib
import os
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import SettingError
from .suite_files import Folder, Talk, read_folder


def tasks_of(suite: Path, patterns: Any) -> list[dict[str, Any]]:
    """Return the tasks of the folder files that match patterns relative to the suite's file.

    Raises:
        SettingError: there are none, or one is not such a file.
    """
    if not isinstance(patterns, str | list):
        raise SettingError(f"{suite}: folders must be a pattern or a list of patterns")
    tasks = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        paths = sorted(glob.glob(str(suite.resolve().parent / str(pattern)), recursive=True))
        if not paths:
            raise SettingError(f"{suite}: no file matches folders = {str(pattern)!r}")
        for path in paths:
            tasks += _tasks(Path(path), suite.resolve().parent)
    return tasks


def _tasks(path: Path, place: Path) -> list[dict[str, Any]]:
    folder = _read(path)
    version = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return [
        {
            "id": f"{folder.name}/{number:03}",
            "group": talk.family,
            "dir": os.path.relpath(path, place),
            "version": version,
            "turns": _turns(talk),
        }
        for number, talk in enumerate(folder.talks, 1)
    ]


def _turns(talk: Talk) -> list[dict[str, Any]]:
    return [
        {
            "ask": turn.ask,
            "group": talk.family_of(number),
            "checks": [
                {"facts": {rule: v for rule, v in asdict(turn).items() if rule != "ask"}},
                {"grounded": True},
            ],
        }
        for number, turn in enumerate(talk.turns)
    ]


def folder_of(path: Path) -> Folder | None:
    """Read the folder that a TOML file describes; None where the path is no folder file."""
    return _read(path) if path.suffix == ".toml" and not path.is_dir() else None


@cache
def _read(path: Path) -> Folder:
    try:
        return read_folder(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingError(f"{path}: not a file with a folder and its questions: {error}") from None
