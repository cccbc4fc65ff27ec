"""Where traces are kept: what stands in the way is said before a model is loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triplepoint.errors import TraceError
from triplepoint.runtime.cli.traces import check_place


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_the_home_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `su`, where HOME stays root's: the error says what to do."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "root" / "state"))
    (tmp_path / "root").mkdir(mode=0)
    for path in (None, str(tmp_path / "root/t.jsonl"), str(tmp_path / "root/a/t.jsonl")):
        with pytest.raises(TraceError, match=r"cannot write a trace to .*name a file with --trace"):
            check_place(path)
