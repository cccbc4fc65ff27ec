"""Fill-in-the-middle (FIM) prompts: for the gap between two texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...tokens.tokenizer import Tokenizer
from ..http.api_error import APIError
from .loaded_model import LoadedModel

PROJECT = "myproject"
"""llama-server's name of every project, which comes before its files."""
SNIPPET = "\n\n--- snippet ---\n\n"
"""llama-server's separator of files, for models without a file token."""


class FileText(NamedTuple):
    """A context file of the project, other than the one with the gap."""

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
    """Return the FIM prompt for the gap between two texts, cut to fit the context.

    The text next to the gap stays: three quarters of the room for the text before it, a quarter
    for the text behind it, or more where the other one is short. `extra` files come first and lose
    their beginning; None: without a project header, too.

    Raises:
        APIError: the model has no FIM tokens.
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
    """Return the tokens of context files, with the model's file tokens or separator lines."""
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
