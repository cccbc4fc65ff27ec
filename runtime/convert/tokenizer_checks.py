"""Checks of the steps of a checkpoint's tokenizer, besides merging, that GGUF has no key for.

What is not known to give the same ids is refused by name. Notes tell of what published tokenizers
have and this engine leaves out: NFC, as llama.cpp does, and spaces that special tokens swallow
(but for those behind Phi-3's).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from ...errors import UnsupportedModelError
from ..tokens.vocabulary import looks_like_markup

SPACE = "▁"
_NFC = (
    "the checkpoint's tokenizer composes text first (Unicode's NFC), which this engine and "
    "llama.cpp do not: text in decomposed form, such as e and U+0301, has other ids"
)
_FIRST = (
    "the checkpoint's tokenizer puts a space only before a text that does not begin with one"
    "{but}; a GGUF file has one put before any text, as SentencePiece does"
)


def check_bytes(described: Mapping[str, Any]) -> list[str]:
    """Check byte-level BPE in `tokenizer.json`; return notes.

    Raises:
        UnsupportedModelError: it changes a text, or marks parts of words, in an unknown way.
    """
    model = described.get("model") or {}
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            _refuse(f"{key} = {model[key]!r}")
    notes = []
    for step in _steps(described.get("normalizer"), "normalizers"):
        if step.get("type") != "NFC":
            _refuse(f"the normalizer {_shown(step)}")
        notes = [_NFC]
    return notes


def check_prefix_space(pre_tokenizer: Any) -> None:
    """Raise UnsupportedModelError where byte-level BPE puts a space before a text."""
    for step in _steps(pre_tokenizer, "pretokenizers"):
        if step.get("type") == "ByteLevel" and step.get("add_prefix_space"):
            _refuse("a space before every text (add_prefix_space of ByteLevel)")


def check_pieces(described: Mapping[str, Any], *, merges: bool = False) -> list[str]:
    """Check a `tokenizer.json` that works as SentencePiece does; return notes.

    merges: whether its own cuts are the engine's business (Gemma 4).

    Raises:
        UnsupportedModelError: it changes or cuts a text in another way than SentencePiece.
    """
    notes = []
    for step in _steps(described.get("normalizer"), "normalizers"):
        prepends = step.get("type") == "Prepend" and step.get("prepend") == SPACE
        if step.get("type") == "NFC":
            notes.append(_NFC)
        elif not prepends and not _marks_spaces(step):
            _refuse(f"the normalizer {_shown(step)}")
    for step in _steps(described.get("pre_tokenizer"), "pretokenizers"):
        if step.get("type") == "Metaspace" and step.get("replacement", SPACE) == SPACE:
            if step.get("split", True) and (inner := _piece_across_words(described)):
                _refuse(f"words that are cut at spaces (split of Metaspace) beside {inner!r}")
            if (scheme := _scheme(step)) != "never":
                but = " and follows no special token" if scheme == "first" else ""
                notes.append(_FIRST.format(but=but))
        elif not merges and not (step.get("type") == "Split" and _splits_at(step, " ")):
            _refuse(f"the pre_tokenizer {_shown(step)}")
    return notes


def puts_space_first(described: Mapping[str, Any]) -> bool:
    """Return whether a `tokenizer.json` that `check_pieces` accepts puts a space before a text."""
    steps = _steps(described.get("normalizer"), "normalizers")
    if any(step.get("type") == "Prepend" for step in steps):
        return True
    steps = _steps(described.get("pre_tokenizer"), "pretokenizers")
    return any(step.get("type") == "Metaspace" and _scheme(step) != "never" for step in steps)


def added_tokens(
    described: Mapping[str, Any] | None, settings: Mapping[str, Any]
) -> dict[int, Mapping[str, Any]]:
    """Return the entries of added tokens by id, sorted; `tokenizer.json` (described) decides."""
    entries = {int(n): e for n, e in (settings.get("added_tokens_decoder") or {}).items()}
    entries |= {int(e["id"]): e for e in (described or {}).get("added_tokens") or []}
    return dict(sorted(entries.items()))


def check_added(
    described: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    swallows: Callable[[str], bool] = lambda _: False,
) -> list[str]:
    """Check added tokens that match elsewhere than at their exact text; return notes.

    Args:
        described: `tokenizer.json`.
        settings: `tokenizer_config.json`.
        swallows: whether this engine drops the space behind a special token, too.

    Raises:
        UnsupportedModelError: a plain word counts only where it stands alone.
    """
    strip: list[str] = []
    alone: list[str] = []
    for entry in added_tokens(described, settings).values():
        text = str(entry.get("content"))
        if entry.get("single_word"):
            if not entry.get("special") and not looks_like_markup(text):
                _refuse(f"the added token {text!r} only as a whole word (single_word)")
            alone.append(text)
        dropped = entry.get("special") and swallows(text)
        if entry.get("lstrip") or (entry.get("rstrip") and not dropped):
            strip.append(text)
    notes = []
    if strip:
        notes.append(
            f"the checkpoint's tokenizer drops spaces and newlines beside {_some(strip)} (lstrip, "
            "rstrip); here they stay, and have ids of their own"
        )
    if alone:
        notes.append(
            f"the checkpoint's tokenizer takes {_some(alone)} only as whole words (single_word); "
            "here they are taken inside words, too"
        )
    return notes


def _steps(described: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """Flatten the steps of a normalizer or a pre-tokenizer, which may be nested sequences."""
    if not isinstance(described, dict):
        return
    if described.get("type") == "Sequence":
        for step in described.get(name) or []:
            yield from _steps(step, name)
    else:
        yield described


def _scheme(metaspace: Mapping[str, Any]) -> str:
    """Return when it prepends a space: first, always or never; older files give a flag only."""
    if not metaspace.get("add_prefix_space", True):
        return "never"
    return str(metaspace.get("prepend_scheme", "always"))


def _marks_spaces(step: Mapping[str, Any]) -> bool:
    return step.get("type") == "Replace" and step.get("content") == SPACE and _splits_at(step, " ")


def _splits_at(step: Mapping[str, Any], text: str) -> bool:
    return step.get("pattern") in ({"String": text}, {"Regex": text})


def _piece_across_words(described: Mapping[str, Any]) -> str | None:
    """Find a piece with a space after its first character, which whole words never produce."""
    vocab = (described.get("model") or {}).get("vocab") or {}
    return next((piece for piece in vocab if SPACE in piece[1:]), None)


def _some(texts: list[str]) -> str:
    shown = ", ".join(repr(text) for text in texts[:3])
    return shown + (f" and {len(texts) - 3} more tokens" if len(texts) > 3 else "")


def _shown(step: Mapping[str, Any]) -> str:
    return json.dumps(step, ensure_ascii=False)[:200]


def _refuse(what: str) -> NoReturn:
    raise UnsupportedModelError(
        f"tokenizer.json asks for {what}, which is not supported: the ids of texts would be others"
    )
