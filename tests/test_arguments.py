"""The command that adds an extra to an installation."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triplepoint import arguments
from triplepoint.arguments import pip_install


class Installed:
    """A distribution with this content of ``direct_url.json``."""

    def __init__(self, source: dict[str, Any] | None) -> None:
        self._source = source

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._source is None else json.dumps(self._source)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Let distributions with these origins be found, for a package that is not in a checkout."""
    monkeypatch.setattr(arguments, "__file__", str(tmp_path / "arguments.py"))

    def install(*sources: dict[str, Any] | None) -> None:
        found = [Installed(source) for source in sources]
        monkeypatch.setattr(importlib.metadata, "distributions", lambda name: found)

    return install


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, ["triplepoint[serve]"]),
        ({"url": "file:///home/me/my%20tp", "dir_info": {}}, ["/home/me/my tp[serve]"]),
        (
            {"url": "file:///src/tp", "dir_info": {"editable": True}},
            ["-e", "/src/tp[serve]"],
        ),
        (
            {"url": "file:///dist/triplepoint-0.1.0-py3-none-any.whl", "archive_info": {}},
            ["triplepoint[serve] @ file:///dist/triplepoint-0.1.0-py3-none-any.whl"],
        ),
        (
            {"url": "https://host/tp.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            ["triplepoint[serve] @ git+https://host/tp.git"],
        ),
    ],
)
def test_an_extra_comes_from_where_the_package_came(
    source: dict[str, Any] | None, words: list[str], installed: Callable[..., None]
) -> None:
    """A folder, an archive and a repository are installed again; without one, from the index."""
    installed(source)
    assert shlex.split(pip_install("serve")) == ["pip", "install", *words]

    installed(None, source)  # first the egg-info that a build has left in the current folder
    assert shlex.split(pip_install("serve")) == ["pip", "install", *words]


def test_an_extra_of_a_checkout_that_is_not_installed(
    installed: Callable[..., None], tmp_path: Path
) -> None:
    """The folder of the package is the checkout; a build in it changes nothing."""
    (tmp_path / "pyproject.toml").touch()
    for found in ([], [None]):
        installed(*found)
        assert shlex.split(pip_install("eval")) == ["pip", "install", f"{tmp_path}[eval]"]
