"""What is taken from a Google docstring."""

from __future__ import annotations

from triplepoint.tools.docstrings import parse_docstring


def test_no_docstring() -> None:
    """Nothing is known, and that is no error."""
    for text in (None, "", "   \n "):
        parsed = parse_docstring(text)
        assert parsed.description == ""
        assert parsed.args == {}


def test_a_full_docstring() -> None:
    """Paragraphs before the first section, the entries of Args, nothing of the others."""
    parsed = parse_docstring(
        """Do a thing
        with care: twice.

        Second paragraph.

        Args:
            one: The first: with a colon.
            two (list[int], optional): The second,
                which goes on

                after an empty line: still two.
            three:
                On its own line.

        Returns:
            one: not an argument.

        Raises:
            ValueError: never.
        """
    )

    assert parsed.description == "Do a thing with care: twice.\n\nSecond paragraph."
    assert parsed.args == {
        "one": "The first: with a colon.",
        "two": "The second, which goes on after an empty line: still two.",
        "three": "On its own line.",
    }


def test_a_sentence_that_ends_like_a_section() -> None:
    """Only a line that is a section's name begins a section."""
    parsed = parse_docstring("Take these Args: one and two.\n\nNote that nothing is cut.")

    assert parsed.description == "Take these Args: one and two.\n\nNote that nothing is cut."
    assert parsed.args == {}
