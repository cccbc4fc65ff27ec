"""The diff of a change: right in every line that it shows, and short."""

from __future__ import annotations

import difflib
import re

import numpy as np
import pytest

from triplepoint.tools.diff import diff


def _patched(old: list[str], patch: list[str]) -> list[str]:
    """The new lines that a unified diff makes of old ones, whose every line it must repeat."""
    new: list[str] = []
    at = 0
    for line in patch[2:]:
        if line.startswith("@@"):
            places = re.findall(r"[-+](\d+)(?:,(\d+))?", line)
            starts = [int(start) - (size != "0") for start, size in places]
            new += old[at : starts[0]]
            at = starts[0]
            assert len(new) == starts[1]
            continue
        if line[0] in " -":
            assert old[at] == line[1:]
            at += 1
        if line[0] in " +":
            new.append(line[1:])
    return new + old[at:]


def test_a_diff_makes_the_new_text_of_the_old(rng: np.random.Generator) -> None:
    """Lines that are shown lie where it says, whatever is inserted, removed and repeated."""
    for _ in range(300):
        old = [str(number) for number in rng.integers(8, size=rng.integers(1, 30))]
        new = list(old)
        for _ in range(rng.integers(1, 5)):
            if new and rng.random() < 0.5:
                del new[rng.integers(len(new))]
            else:
                new.insert(rng.integers(len(new) + 1), str(rng.integers(6, 10)))
        if new != old:
            shown = diff("\n".join(old), "\n".join(new), "f")
            assert _patched(old, shown.split("\n")) == new


def test_a_diff_of_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown is right also where only the beginning is compared, and what is not is said."""
    old = [f"line {number % 150}" for number in range(50_000)]
    early, late = [*old], [*old]
    early[4] = late[4] = "new"
    del late[40_000]

    assert _patched(old, diff("\n".join(old), "\n".join(early), "f").split("\n")) == early
    *shown, cut = diff("\n".join(old), "\n".join(late), "f").split("\n")
    assert _patched(old, shown) == early
    assert cut == "[cut: 38997 more lines were not compared]"
    longer = diff("a\nb", "a\n" + "x\n" * 5000 + "b", "f").split("\n")
    assert longer[:5] == ["--- a/f", "+++ b/f", "@@ -1 +1,1001 @@", " a", "+x"]
    assert longer[60] == "[cut: 884 lines of the diff]"
    assert longer[-2:] == ["+x", "[cut: 4000 more lines were not compared]"]
    written = diff("", "\n".join(f"{n}" for n in range(300)), "f").split("\n")
    assert written[60] == "[cut: 183 lines of the diff]"
    assert written[-1] == "+299"  # what comes last may be what matters

    compared: list[int] = []
    matcher = difflib.SequenceMatcher

    def counted(junk: None, a: list[str], b: list[str]) -> difflib.SequenceMatcher[str]:
        compared.append(max(len(a), len(b)))
        return matcher(junk, a, b)

    monkeypatch.setattr(difflib, "SequenceMatcher", counted)
    diff("\n".join(old), "\n".join(reversed(old)), "f")
    assert compared
    assert max(compared) <= 1004  # all of them took minutes


# --- depth
