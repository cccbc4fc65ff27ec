"""Tests of `labs` are slow ones: what they test is not in the product."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave them unread where slow tests are not wanted: their imports take seconds."""
    return True if "not slow" in config.option.markexpr else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all of them to CI, but for those that even CI does not run."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
