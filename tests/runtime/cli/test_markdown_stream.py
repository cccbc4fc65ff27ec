"""Cutting a growing text into Markdown blocks."""

from __future__ import annotations

import random

import pytest

from triplepoint.runtime.cli.markdown_stream import MarkdownStream, as_markdown

TEXT = """# Head

A paragraph
of two lines.


```python
x = 1

y = 2
```
After the code.

~~~~
~~~
still code

~~~~

- a

- b"""
BLOCKS = [
    "# Head",
    "A paragraph\nof two lines.",
    "```python\nx = 1\n\ny = 2\n```",
    "After the code.",
    "~~~~\n~~~\nstill code\n\n~~~~",
    "- a",
    "- b",
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 1000])
def test_the_same_blocks_however_it_comes(size: int) -> None:
    """Code is never cut at its blank lines; a block comes as soon as it is whole."""
    blocks = MarkdownStream()
    found: list[str] = []
    for start in range(0, len(TEXT), size):
        found += blocks.push(TEXT[start : start + size])
    found.append(blocks.finish())

    assert found == BLOCKS
    assert blocks.pending == ""


def test_nothing_is_lost() -> None:
    """Whatever a model writes, all of its lines come out, in order."""
    rng = random.Random(7)
    for _ in range(200):
        lines = [
            rng.choice(["a", "", "```", "~~~", "````x", "- b", "  ```", " "]) for _ in range(12)
        ]
        blocks = MarkdownStream()
        found: list[str] = []
        for line in lines:
            found += blocks.push(line + "\n")
        found.append(blocks.finish())

        kept = [line for block in found for line in block.split("\n") if line.strip()]
        assert kept == [line for line in lines if line.strip()]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('Line 1 says: <server port="8080">', 'Line 1 says: <server port="8080">'),
        ("Vec<String> x = new Vec<String>();", "Vec<String> x = new Vec<String>();"),
        ("<div>\nlost?\n</div>", "<div> lost? </div>"),
        ("__init__ and _x_", "__init__ and _x_"),
        (r"&amp; \* a\b <http://x.y>", r"&amp; \* a\b <http://x.y>"),
        ("**bold**, *it*, `a <b>` and ~~gone~~", "bold, it, a <b> and gone"),
    ],
)
def test_what_an_answer_quotes_is_in_sight(text: str, shown: str) -> None:
    """HTML and underscores are text; stars and backticks are marks."""
    from rich.console import Console

    console = Console(width=78, force_terminal=False)
    with console.capture() as captured:
        console.print(as_markdown(text))
    assert captured.get().strip() == shown
