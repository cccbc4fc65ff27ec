"""Fill-in-the-middle prompts: for the gap between two texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...tokens.tokenizer import Tokenizer
from ..http.api_error import APIError
from .loaded_model import LoadedModel

PROJECT = "myproject"
"""What llama-server calls every project, before its files."""
SNIPPET = "\n\n--- snippet ---\n\n"
"""What it writes between texts where the model has no token between files."""


class FileText(NamedTuple):
    """A file of the project, besides the one with the gap."""

    filename: str
    text: str


def filled(
    model: LoadedModel,
    before: Sequence[int],
    behind: Sequence[int],
    max_tokens: int | None,
    extra: Sequence[FileText] | None = None,
    *,
    param: str = "model",
) -> list[int]:
    """Return the prompt for the gap between two texts, with as much of them as the context holds.

    What is next to the gap stays: of what there is room for, three quarters before it at most, a
    quarter behind it. Further texts come first, as files of a project, and lose their beginning;
    None: there is no project, either.

    Raises:
        APIError: the model has no tokens for it.
    """
    tokenizer, context = model.engine.tokenizer, model.engine.context
    marks = tokenizer.vocabulary.fill
    if missing := [name for name in ("prefix", "suffix", "middle") if name not in marks]:
        raise APIError(
            f"the model {model.name} has no fill-in-the-middle tokens: {', '.join(missing)}",
            param=param,
            code="not_supported",
        )
    begin = [tokenizer.bos] if tokenizer.add_bos and tokenizer.bos is not None else []
    answer = context // 4 if max_tokens is None else min(max_tokens, context // 2)
    room = max(0, context - answer - 4 - len(begin))
    behind = behind[: max(room // 4, room - len(before))]
    before = before[max(0, len(before) - room + len(behind)) :]
    files = [] if extra is None else _files(extra, tokenizer)
    files = files[max(0, len(files) - room + len(before) + len(behind)) :]
    middle = [marks["prefix"], *before, marks["suffix"], *behind, marks["middle"]]
    return [*begin, *files, *middle]


def _files(extra: Sequence[FileText], tokenizer: Tokenizer) -> list[int]:
    """Return further texts as the model knows files, or with a line between them."""
    marks, ids = tokenizer.vocabulary.fill, list[int]()
    between = marks.get("file")
    if "repository" in marks:
        ids += [marks["repository"], *tokenizer.encode(f"{PROJECT}\n")]
    for one in extra:
        name = SNIPPET if between is None else f"{one.filename}\n"
        ids += [] if between is None else [between]
        ids += [*tokenizer.encode(name), *tokenizer.encode(one.text)]
    if between is not None:
        ids += [between, *tokenizer.encode("filename\n")]
    return ids
