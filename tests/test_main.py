"""``python -m triplepoint``: the exit status is the command's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_INTERRUPTED = """
import sys
from triplepoint import __main__
from triplepoint.runtime import cli

cli.main = lambda _: exec("raise KeyboardInterrupt({status})")
sys.exit(__main__.main())
"""


@pytest.mark.parametrize("status", [143, 129])
def test_a_signal_in_code_from_text_has_its_own_status(tmp_path: Path, status: int) -> None:
    """Modules make such code as they are imported, and Python then takes it for a Ctrl-C."""
    (tmp_path / "ended.py").write_text(_INTERRUPTED.format(status=status))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "ended"], env=os.environ | {"PYTHONPATH": path}, timeout=60
    )
    assert done.returncode == status
