"""Prompts of completions: texts or token IDs that the model continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from ...tokens.tokenizer import Tokenizer
from ..http.api_error import APIError
from ..models.generate import GenerationRequest
from ..models.loaded_model import LoadedModel
from ..settings import Limits
from .body import Body
from .sampling_body import StreamBody, check_token

Piece = int | str
"""Part of a prompt: a token ID or a text."""


class PromptObject(Body):
    """How llama-server also takes a text; what else it takes there are images and sounds."""

    prompt_string: str
    multimodal_data: list[Any] | None = Field(default=None, max_length=0)


Prompts = str | PromptObject | list[Piece] | list[str | PromptObject | list[Piece]]


class PromptBody(StreamBody):
    """The parameters that both formats of completions share."""

    is_completion = True
    limit_names = ("max_tokens",)
    prompt_param: ClassVar[str] = "prompt"

    max_tokens: int | None = Field(default=None, ge=-1)

    def generation(
        self,
        model: LoadedModel,
        ids: list[int],
        limits: Limits,
        ends: frozenset[int] = frozenset(),
    ) -> GenerationRequest:
        """Build the engine request for one prompt; `ends` are further tokens that end an answer.

        Raises:
            APIError: a setting is invalid for this model, or together with another one.
        """
        form = self.output_format(limits)
        if form is not None and self.ignore_eos:
            raise APIError(
                "with a grammar, the answer ends where the grammar ends", param="ignore_eos"
            )
        prompt = model.prompts.continuation(ids, form, self.prompt_param)
        made = self.request_for(prompt, model, limits)
        return replace(made, turn=replace(made.turn, ends=ends.union(made.turn.ends or ())))


def prompts_of(given: Prompts, max_prompts: int, param: str = "prompt") -> list[str | list[Piece]]:
    """Split the parameter into prompts: each is a text, or token IDs mixed with texts.

    Raises:
        APIError: they are too many, or one is empty.
    """
    several = isinstance(given, list) and (
        all(isinstance(one, str) for one in given)
        or any(isinstance(one, list | PromptObject) for one in given)
    )
    found: list[Any] = list(given) if several and isinstance(given, list) else [given]
    found = [one.prompt_string if isinstance(one, PromptObject) else one for one in found]
    if len(found) > max_prompts:
        raise APIError(f"Invalid '{param}': at most {max_prompts:,} of them.", param=param)
    if not found or not all(found):
        raise APIError(f"Invalid '{param}': it is empty.", param=param)
    return found


def pieces_of(
    given: str | Sequence[Piece], tokenizer: Tokenizer, param: str, *, special: bool = False
) -> list[int]:
    """Tokenize a text, or token IDs mixed with texts, without a BOS token.

    Raises:
        APIError: one is not in the vocabulary.
    """
    ids: list[int] = []
    for piece in [given] if isinstance(given, str) else given:
        if isinstance(piece, str):
            ids += tokenizer.encode(piece, special=special)
        else:
            check_token(piece, tokenizer, param)
            ids.append(piece)
    return ids


def ids_of(prompt: str | Sequence[Piece], tokenizer: Tokenizer, param: str = "prompt") -> list[int]:
    """Tokenize a prompt, a text or token IDs mixed with texts, with BOS if the model adds it.

    Raises:
        APIError: one is not in the vocabulary.
    """
    # The whole prompt is the caller's own text, control tokens included.
    ids = pieces_of(prompt, tokenizer, param, special=True)
    begins = isinstance(prompt, str) or isinstance(prompt[0], str)
    if begins and tokenizer.add_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
        ids.insert(0, tokenizer.bos)
    if not ids:
        raise APIError(f"Invalid '{param}': it has no tokens.", param=param)
    return ids
