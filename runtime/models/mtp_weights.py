"""The weights of a draft layer (`mtp.py`): which file has one, and its tensors."""

from __future__ import annotations

from dataclasses import replace

from ..gguf.file import GGUFFile
from .blocks import Block
from .decoder import Decoder
from .mtp import MTP, Appends


def has_mtp(gguf: GGUFFile, architecture: str) -> bool:
    """Return whether a file has a draft layer's tensors: many only declare one in metadata."""
    return _number(gguf, architecture) is not None


def load_mtp(model: Decoder) -> MTP | None:
    """Request the weights of the first draft layer, if the file has one.

    Raises:
        GGUFError: a tensor of it is missing or has another shape.
    """
    gguf, w, c = model.gguf, model.weights, model.config
    layer = _number(gguf, model.architecture)
    if layer is None:
        return None
    like = max(n for n, shape in enumerate(c.shapes) if shape)  # a layer of its kind
    name = f"blk.{layer}.{{}}".format
    part = f"blk.{layer}.nextn.{{}}.weight".format
    table, output = model.embedding, model.output
    form = model.embedding_format
    if part("embed_tokens") in gguf.tensors:
        form = w.format_of(part("embed_tokens")).name
        table = w.table(part("embed_tokens"), c.n_vocab, c.width)
    if part("shared_head_head") in gguf.tensors:
        output = w.matrix(part("shared_head_head"), c.n_vocab, c.width)
    mixer = model.load_attention(name, like)
    assert isinstance(mixer, Appends), f"{model.architecture} says that it drafts"
    mixer.rule = replace(mixer.rule, first=1)
    from_embedding, from_hidden = w.columns(part("eh_proj"), c.width, (c.width, c.width))
    shape = c.shapes[like]
    assert shape is not None, "it attends"
    last = "shared_head_norm" if part("shared_head_norm") in gguf.tensors else None
    return MTP(
        layer=c.layers,
        width=c.width,
        eps=model.eps,
        table=table,
        table_format=form,
        scale=model.embedding_scale,
        from_embedding=from_embedding,
        from_hidden=from_hidden,
        norms=(
            model.norm_weight(part("enorm")),
            model.norm_weight(part("hnorm")),
            model.norm_weight(part(last)) if last else model.output_norm,
        ),
        before_head=model.output_norm if model.drafts_from == "normed" else None,
        block=Block(mixer, model.load_ffn(name, like)),
        output=output,
        heads=shape,
    )


def _number(gguf: GGUFFile, architecture: str) -> int | None:
    """Return the first draft layer, if its tensors are there."""
    first = gguf.integer(f"{architecture}.block_count", 0)
    first -= gguf.integer(f"{architecture}.nextn_predict_layers", 0)
    return first if f"blk.{first}.nextn.eh_proj.weight" in gguf.tensors else None
