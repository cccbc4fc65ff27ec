"""A GGUF file's kind, whether it can run here, and the memory it needs.

Only the header is read, and the forward pass asks for its weights without packing them: what the
engine would refuse is refused here in the same words, in milliseconds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from ...errors import ModelError, TriplepointError
from ..gguf.file import GGMLType, GGUFFile, MetadataValue
from ..gguf.open import open_gguf

# The type that most weights have where the name of a mixture does not say it.
_MIXTURES = {"IQ2_M": "IQ2_S", "IQ3_M": "IQ3_S", "IQ3_XS": "IQ3_S", "MXFP4_MOE": "MXFP4"}


@dataclass(frozen=True, slots=True)
class TypeShare:
    """The tensors of one type: their number, weights, and bytes in the file."""

    tensors: int
    parameters: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that a loaded model takes, in bytes.

    Attributes:
        weights: packed weights.
        kv_token: keys and values of a token, by format.
        window: tokens that layers see which do not see all; near: their share of `kv_token`.
        state: recurrent state of a sequence, whatever its length.
    """

    weights: int
    kv_token: dict[str, float]
    window: int = 0
    near: float = 0.0
    state: int = 0

    def total(self, context: int, kv: str) -> int:
        """Return the bytes of weights and the KV cache of a full context, windows considered."""
        from ..forward.kv import resident_positions

        cached = math.ceil(resident_positions(context, self.window, self.near) * self.kv_token[kv])
        return self.weights + cached + self.state


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The contents of a model file's header, and whether it can run here.

    Attributes:
        quant: the type that most weights have.
        context: tokens that it was made for, None if it does not say.
        tokenizer: kind of the tokenizer, and how it cuts words.
        template: whether it has a chat template.
        metadata: values by key; of an array, how long it is.
        problems: why it cannot be run here; empty if it can.
        memory: None if it cannot be run.
        mtp: what becomes of a layer that only drafts, if the model has one: ``used``, ``left out``,
            or ``missing`` where the file does not hold it; else empty.
    """

    path: Path
    files: int
    nbytes: int
    name: str
    architecture: str
    quant: str
    parameters: int
    layers: int | None
    context: int | None
    tokenizer: str
    template: bool
    types: dict[str, TypeShare]
    metadata: dict[str, bool | int | float | str]
    problems: tuple[str, ...]
    memory: Memory | None
    mtp: str = ""


def read_model_info(path: Path, target: str | None = None) -> FileInfo:
    """Read the header of the model at `path`, and check whether `target` can run it.

    Raises:
        ModelError: it cannot be opened, or is damaged.
    """
    with open_gguf(path) as gguf:
        architecture = gguf.string("general.architecture", "")
        types = _types(gguf)
        problems, memory = _problems(gguf, architecture, types), None
        if not problems:
            try:
                memory = _memory(gguf, target)
            except TriplepointError as error:
                problems = [_short(str(error), gguf)]
        return FileInfo(
            path=path,
            files=len(gguf.parts),
            nbytes=gguf.nbytes,
            name=gguf.string("general.name", "") or path.stem,
            architecture=architecture,
            quant=max(types, key=lambda kind: types[kind].parameters, default=""),
            parameters=sum(share.parameters for share in types.values()),
            layers=_number(gguf, f"{architecture}.block_count"),
            context=_number(gguf, f"{architecture}.context_length"),
            tokenizer=_tokenizer(gguf),
            template=bool(gguf.string("tokenizer.chat_template", "")),
            types=types,
            metadata={key: _scalar(value) for key, value in gguf.metadata.items()},
            problems=tuple(problems),
            memory=memory,
            mtp=_mtp(gguf, architecture),
        )


def unsupported_architecture(name: str | None) -> str | None:
    """Explain why models of this architecture cannot run; None if they can, or it is unknown."""
    from ..models import why_unsupported

    why = why_unsupported(name) if name else None
    return f"the {why}" if why else None


def unsupported_quant(label: str) -> str | None:
    """Explain why files with this label cannot run; None if they can, or it is unknown."""
    from ...jit.kernels.panels import FORMATS

    name = label.removeprefix("UD-")
    name = _MIXTURES.get(name, name)
    name = re.sub(r"(?<=_K)_(XXL|XL|XS|L|M|S)$", "", name)
    if name not in GGMLType.__members__ or name.lower() in FORMATS:
        return None
    return f"weights in {label} have no kernel; supported: {_known_types()}"


def _problems(gguf: GGUFFile, architecture: str, types: dict[str, TypeShare]) -> list[str]:
    """List all that is known to be unsupported, not only the first."""
    from ...jit.kernels.panels import FORMATS
    from ..tokens.tokenizer import Tokenizer

    found = []
    if not architecture:
        found.append("the file does not name its architecture (general.architecture)")
    elif why := unsupported_architecture(architecture):
        found.append(why)
    strange = [kind for kind in types if kind.lower() not in FORMATS]
    if strange:
        found.append(f"weights in {', '.join(strange)} have no kernel; supported: {_known_types()}")
    try:
        Tokenizer.from_gguf(gguf)
    except TriplepointError as error:
        found.append(_short(str(error), gguf))
    return found


def _memory(gguf: GGUFFile, target: str | None) -> Memory:
    from ...jit import targets
    from ...jit.compile import Library, ObjectCache
    from ...jit.kv_formats import KV_FORMATS
    from .. import models
    from ..forward.kv import KVLayout
    from ..weights.loader import WeightLoader

    weights = WeightLoader(gguf, Library(targets.named(target), ObjectCache(None)))
    network = models.build(gguf, weights, mtp=True)
    shapes, windows = zip(*network.cached, strict=True)
    layouts = {
        kv: KVLayout(kv, shapes, 0, windows=windows, row_width=network.row_width)
        for kv in KV_FORMATS
    }
    kv_token = {kv: layout.position_bytes for kv, layout in layouts.items()}
    usual = layouts["bf16"]
    state = 4 * sum(floats for _, floats in network.states)
    return Memory(weights.packed_bytes, kv_token, usual.window, usual.near_share, state)


def _mtp(gguf: GGUFFile, architecture: str) -> str:
    from ..models import drafts
    from ..models.mtp_weights import has_mtp

    if not _number(gguf, f"{architecture}.nextn_predict_layers"):
        return ""
    if not has_mtp(gguf, architecture):
        return "missing"
    return "used" if drafts(architecture) else "left out"


def _types(gguf: GGUFFile) -> dict[str, TypeShare]:
    """Sum tensors by type, the one with the most bytes first."""
    shares: dict[str, TypeShare] = {}
    for info in gguf.tensors.values():
        old = shares.get(info.type.name, TypeShare(0, 0, 0))
        shares[info.type.name] = TypeShare(
            old.tensors + 1, old.parameters + math.prod(info.shape), old.nbytes + info.nbytes
        )
    return dict(sorted(shares.items(), key=lambda item: -item[1].nbytes))


def _scalar(value: MetadataValue) -> bool | int | float | str:
    if isinstance(value, bool | int | float | str):
        return value
    return f"[{len(value):,} values]"


def _known_types() -> str:
    from ...jit.kernels.panels import FORMATS

    return ", ".join(sorted(name.upper() for name in FORMATS))


def _number(gguf: GGUFFile, key: str) -> int | None:
    try:
        return gguf.integer(key)
    except ModelError:
        return None


def _tokenizer(gguf: GGUFFile) -> str:
    model = gguf.string("tokenizer.ggml.model", "none")
    pre = gguf.string("tokenizer.ggml.pre", "")
    return f"{model} ({pre})" if pre else model


def _short(message: str, gguf: GGUFFile) -> str:
    """Return a message without the path that the reader knows already."""
    return message.removeprefix(f"{gguf.path}: ")
