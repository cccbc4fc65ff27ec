"""Groups of tools: what `--tools` and the rows of a fleet name."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import Workspace
from triplepoint.tools.groups import GROUPS, make_group


@pytest.mark.parametrize("name", GROUPS)
def test_each_group_has_the_tools_that_it_names(tmp_path: Path, name: str) -> None:
    """In a folder, or in one that is open already; only `net` needs none."""
    for folder in (tmp_path, str(tmp_path), Workspace(tmp_path)):
        assert tuple(tool.name for tool in make_group(name, folder)) == GROUPS[name]
    if name == "net":
        assert [tool.name for tool in make_group(name, None)] == ["fetch_url"]
    else:
        with pytest.raises(ToolError, match=f"the tools {name} need a folder"):
            make_group(name, None)
