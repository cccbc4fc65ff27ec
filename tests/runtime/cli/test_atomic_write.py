"""Files that commands write."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint.runtime.cli import main
from triplepoint.runtime.cli.exit_codes import Exit


@pytest.mark.parametrize(
    "words",
    [
        "trace show gone --svg",
        "trace report gone --html",
        "plan --html",
        "plan --svg",
        "regimes gone -o",
        "plan cost gone --svg",
        "eval gone --html",
    ],
)
def test_a_file_that_cannot_be_written_is_told_before_the_work(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the work would be of need not even be there."""
    wanted = tmp_path / "no" / "page.svg"

    assert main([*words.split(), str(wanted)]) == Exit.FILE
    said = f"triplepoint: error: cannot write {wanted}: there is no folder {wanted.parent}\n"
    assert capsys.readouterr().err == said
