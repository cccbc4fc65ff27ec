"""The models among a repository's files: quantizations, shards, and their selection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ...errors import ModelError
from .progress import size_text

DEFAULT = "Q4_K_M"

# As in Qwen3-4B-Q4_K_M.gguf, model.i1-IQ4_XS.gguf, UD-Q4_K_XL/…, smollm-q8_0.gguf.
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])"
    r"((?:UD-)?(?:"
    r"Q\d(?:_K(?:_(?:XXL|XL|XS|L|M|S))?|_\d(?:_\d){0,2})?"
    r"|IQ\d_(?:XXS|XS|NL|KSS|KS|KT|KL|S|M|K)"
    r"|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|FP16|F16|FP32|F32))"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.I | re.DOTALL)
_AUXILIARY = re.compile(r"mmproj|imatrix|(?:^|/)mtp[-_.]", re.IGNORECASE)  # X-MTP-Q4_0 is whole


class ChoiceError(ModelError):
    """An error: the choice among a repository's models is ambiguous, or none fits.

    Attributes:
        variants: models to choose from.
        fits: whether these match the selector; if not, none does.
    """

    def __init__(self, message: str, variants: Sequence[Variant], *, fits: bool = False) -> None:
        super().__init__(message)
        self.variants = tuple(variants)
        self.fits = fits


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file of a repository.

    Attributes:
        path: in the repository, with slashes.
        size: bytes.
        digest: SHA-256 (64 digits), or the hash of a git blob (40 digits) of a file that git
            keeps itself; None if it is not known.
    """

    path: str
    size: int
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """A model in a repository: one file, or all shards of one.

    Attributes:
        quant: as its name has it, in capitals, e.g. ``Q4_K_M``; empty if it has none.
        files: in the order of the shards.
        extra: whether it is no language model by itself, such as a projector for images.
        shards: files that it should have.
    """

    quant: str
    files: tuple[RepoFile, ...]
    extra: bool = False
    shards: int = 1

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def name(self) -> str:
        """The path of its first file."""
        return self.files[0].path

    @property
    def complete(self) -> bool:
        """Whether all shards are there."""
        return len(self.files) == self.shards


def variants_of(files: Iterable[RepoFile]) -> list[Variant]:
    """Group GGUF files and their shards into variants of a model, smallest first."""
    groups: dict[tuple[str, int], dict[int, RepoFile]] = {}
    for file in files:
        if not file.path.lower().endswith(".gguf"):
            continue
        match = _SHARD.fullmatch(file.path)
        key = (match["stem"], int(match["count"])) if match else (file.path, 0)
        number = int(match["number"]) if match else 0
        if not match or 1 <= number <= key[1]:  # 00003-of-00002 is a part of nothing
            groups.setdefault(key, {})[number] = file
    found = []
    for (stem, count), numbered in groups.items():
        members = tuple(numbered[number] for number in sorted(numbered))
        auxiliary = bool(_AUXILIARY.search(stem.rpartition("/")[2]))
        found.append(Variant(quant_of(stem), members, auxiliary, max(1, count)))
    return sorted(found, key=lambda v: (v.extra, v.size, v.name))


def quant_of(path: str) -> str:
    """Return the quantization in a file's name, else its folder's; empty if there is none."""
    for part in reversed(path.removesuffix(".gguf").split("/")):
        if found := _QUANT.findall(part):
            return found[-1].upper().replace("FP16", "F16").replace("FP32", "F32")
    return ""


def choose(
    variants: Sequence[Variant], selector: str | None, where: str, *, whole: bool = True
) -> Variant:
    """Choose a variant; Q4_K_M if there is a choice and no selector.

    Args:
        variants: of one repository.
        selector: quantization or file in any case, or a part of a file's name.
        where: name of the repository or cache in messages.
        whole: whether all its shards must be there.

    Raises:
        ChoiceError: none fits, or several do.
        ModelError: it lacks a shard.
    """
    models = [variant for variant in variants if not variant.extra]
    if not models and not (selector and variants):
        raise ModelError(f"{where} has no GGUF file")
    if selector is None:
        chosen = models if len(models) == 1 else [v for v in models if v.quant == DEFAULT]
        if not chosen:
            one = next((v.quant for v in models if v.quant), models[0].name)
            message = f"{where} has no {DEFAULT}; choose one by adding it, as in :{one}"
            raise ChoiceError(message, models)
    else:
        chosen = _matching(variants, selector)
        if not chosen:
            known = {text.lower(): text for v in models for text in (v.quant, v.name) if text}
            near = get_close_matches(selector.lower(), known, 1, 0.5)
            hint = f"; did you mean {known[near[0]]}?" if near else ""
            raise ChoiceError(f"{where} has no {selector!r}{hint}", models)
    if len(chosen) > 1:
        raise ChoiceError(
            f"{where} has {len(chosen)} files for {selector or DEFAULT}; name one of them, as in "
            f":{chosen[0].name}",
            chosen,
            fits=True,
        )
    if whole and not chosen[0].complete:
        have = f"{len(chosen[0].files)} of {chosen[0].shards} parts of {chosen[0].name}"
        raise ModelError(f"{where} has only {have}")
    return chosen[0]


def listing(variants: Sequence[Variant]) -> str:
    """List the variants on one line, for a message."""
    return ", ".join(f"{v.quant or v.name} ({size_text(v.size)})" for v in variants)


def _matching(variants: Sequence[Variant], selector: str) -> list[Variant]:
    wanted = selector.strip("/").lower()
    if wanted.endswith(".gguf"):
        for whole in (True, False):
            exact = [v for v in variants if any(_is(f.path, wanted, whole) for f in v.files)]
            if exact:
                return exact
        return []
    models = [variant for variant in variants if not variant.extra]
    for sought in (models, variants):
        quant = quant_of(wanted)
        if quant and quant.lower() == wanted.replace("fp16", "f16").replace("fp32", "f32"):
            exact = [v for v in sought if v.quant == quant]
            if exact:
                return exact
        found = [v for v in sought if _contains(v.name.lower(), wanted)]
        if found:
            return found
    return []


def _contains(name: str, selector: str) -> bool:
    """Return whether `selector` is in `name` between separators, and not half a quantization."""
    whole = [match.span(1) for match in _QUANT.finditer(name)]
    whole = [(start + 3 * name.startswith("ud-", start), end) for start, end in whole]
    part = re.compile(f"(?<![a-z0-9]){re.escape(selector)}(?![a-z0-9])")
    for match in part.finditer(name):
        first, last = match.span()
        if all(last <= a or first >= b or (first <= a and b <= last) for a, b in whole):
            return True
    return False


def _is(path: str, wanted: str, whole: bool) -> bool:
    path = path.lower()
    return path == wanted if whole else path.rpartition("/")[2] == wanted
