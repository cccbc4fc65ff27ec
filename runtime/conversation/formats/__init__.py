"""Registry of models' tool-call formats, one per module, and their detection.

The template names it in most cases: it shows the model how to call, and a call that it writes
itself proves the name (see `proof`). Where it does not, a token of the vocabulary that opens calls
tells what the model was trained on. Where there is neither, the prompt asks for JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .functionary import Functionary
from .gemma import FunctionGemma, Gemma, Gemma4
from .glm import Glm
from .granite import Granite
from .harmony import Harmony
from .hermes import Hermes
from .json_text import JsonText
from .lfm2 import Lfm2
from .listed import Listed, MiniMaxM1, Nemotron
from .llama import Llama
from .minimax import MiniMax
from .mistral import Mistral, MistralArgs
from .olmo3 import Olmo3
from .phi import Phi
from .qwen_coder import QwenCoder
from .toolcalls import ToolFormat

if TYPE_CHECKING:
    from ...tokens.tokenizer import Tokenizer

FALLBACK = JsonText()
FORMATS: dict[str, ToolFormat] = {}
"""Registered formats by name, in the order in which a template is matched."""


def register(form: ToolFormat) -> None:
    """Register a format; one of the same name is replaced."""
    FORMATS[form.name] = form


for _form in (
    *(Glm(), QwenCoder(), MiniMax(), Listed(), MiniMaxM1(), Nemotron(), Hermes()),
    *(
        Harmony(),
        Lfm2(),
        Olmo3(),
        MistralArgs(),
        Mistral(),
        FunctionGemma(),
        Gemma4(),
        Phi(),
        Granite(),
        Functionary(),
        Llama(),
        Gemma(),
        FALLBACK,
    ),
):
    register(_form)


def format_of(template: str) -> ToolFormat | None:
    """Return the format that a chat template uses, or None."""
    return next((form for form in FORMATS.values() if form.speaks(template)), None)


def format_for(template: str, tokenizer: Tokenizer) -> ToolFormat:
    """Return a model's format: by its template, else its tokens, else JSON in its text."""
    found = format_of(template)
    if found is not None:
        return found
    marks = tokenizer.vocabulary.all_markers
    for form in FORMATS.values():
        tags = [opening.text for opening in form.openings if not opening.in_call]
        headed = form.headers is not None and all(tag in marks for tag in form.headers.tags)
        if headed or (not form.on_request and any(tag in marks for tag in tags)):
            return form
    return FALLBACK
