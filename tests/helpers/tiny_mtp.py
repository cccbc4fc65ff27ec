"""Tiny models with a layer that drafts: its weights in a checkpoint, and what it drafts by torch.

transformers leaves such layers out. The reference makes one of its parts: a model of transformers
with one layer, of the kind that the layer is, takes x of the formulas in `runtime/models/mtp.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import hybrid_models as hybrid
from . import tiny_families
from . import tiny_models as tiny

NAMES = ("qwen35", "qwen35moe", "glm4-flash")
_QWEN = {
    "eh_proj": "mtp.fc.weight",
    "enorm": "mtp.pre_fc_norm_embedding.weight",
    "hnorm": "mtp.pre_fc_norm_hidden.weight",
    "norm": "mtp.norm.weight",
    "layer": "mtp.layers.0.",
}
_GLM = {
    "eh_proj": "model.layers.3.eh_proj.weight",
    "enorm": "model.layers.3.enorm.weight",
    "hnorm": "model.layers.3.hnorm.weight",
    "norm": "model.layers.3.shared_head.norm.weight",
    "layer": "model.layers.3.",
}


def _names(name: str) -> dict[str, str]:
    return _GLM if name == "glm4-flash" else _QWEN


def _like(name: str) -> int:
    """A layer of the model that is of the kind of the one that drafts."""
    c = tiny.config_of(name)
    if name == "glm4-flash":
        return c["num_hidden_layers"] - 1
    return hybrid.kinds_of(c).index("full_attention")


def weights(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights of the layer, float32, by their names in a checkpoint."""
    c, rng, names = tiny.config_of(name), np.random.default_rng(seed + 77), _names(name)
    width, shapes = c["hidden_size"], tiny_families if name == "glm4-flash" else hybrid
    layer = shapes.layer_shapes(c, _like(name))
    found = {names["layer"] + part: shape for part, shape in layer.items()}
    found[names["eh_proj"]] = (width, 2 * width)
    found |= {names[part]: (width,) for part in ("enorm", "hnorm", "norm")}

    def values(part: str, shape: tuple[int, ...]) -> np.ndarray:
        noise = rng.standard_normal(shape)
        if len(shape) >= 2:
            return noise * 1.5 / np.sqrt(shape[-1])
        return noise * 0.2 + (name == "glm4-flash" and not part.endswith("bias"))

    return {part: values(part, shape).astype(np.float32) for part, shape in found.items()}


def write_model(path: Path, name: str, kind: str = "f32", **more: Any) -> None:
    """Write the model's GGUF file, with the layer."""
    tiny.write_model(path, name, kind, extra=weights(name), **more)


class Reference:
    """What the layer drafts, by torch in float32."""

    def __init__(self, name: str) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        self.torch, self.name, self.glm = torch, name, name == "glm4-flash"
        self.model = tiny.torch_model(name)
        c, names, like = tiny.config_of(name), _names(name), _like(name)
        own = {"num_hidden_layers": 1, "attn_implementation": "eager", "pad_token_id": 0}
        own["mlp_layer_types" if self.glm else "layer_types"] = [
            "sparse" if self.glm else "full_attention"
        ]
        self.layer = AutoModelForCausalLM.from_config(AutoConfig.for_model(**c | own)).eval()
        mine = {n: torch.from_numpy(v) for n, v in weights(name).items()}
        shapes = tiny_families if self.glm else hybrid
        state = {
            f"model.layers.0.{part}": mine[names["layer"] + part]
            for part in shapes.layer_shapes(c, like)
        }
        if self.glm:
            state = tiny_families.from_disk(state)
        state["model.norm.weight"] = mine[names["norm"]]
        missing, unexpected = self.layer.load_state_dict(state, strict=False)
        assert not unexpected, unexpected
        assert set(missing) <= {"model.embed_tokens.weight", "lm_head.weight"}, missing
        self.weights = {part: mine[n] for part, n in names.items() if part != "layer"}
        self.eps = c["rms_norm_eps"]

    def _normed(self, x: Any, part: str) -> Any:
        x = x / self.torch.sqrt((x * x).mean(-1, keepdim=True) + self.eps)
        return x * (self.weights[part] + (0 if self.glm else 1))

    def _run(self, model: Any, **given: Any) -> Any:
        """What a model gives as h: rows behind its last norm, or before that."""
        seen: list[Any] = []
        norm = model.model.norm
        hook = norm.register_forward_hook(lambda _, into, out: seen.append((into[0], out)))
        model.model(**given, use_cache=False)
        hook.remove()
        return seen[-1][0][0] if self.glm else seen[-1][1][0]

    def drafts(self, ids: list[int], count: int) -> tuple[list[int], list[np.ndarray]]:
        """So many drafts behind tokens of which the last was chosen, and the logits of each."""
        torch = self.torch
        found, logits = list[int](), list[np.ndarray]()
        with torch.no_grad():
            h = self._run(self.model, input_ids=torch.tensor([ids]))[:-1]
            if self.glm:  # all but the last are read back from pages
                h = torch.cat([h[:-1].bfloat16().float(), h[-1:]])
            embed = self.model.model.embed_tokens.weight
            tokens = ids[1:]
            while len(found) < count:
                e = embed[torch.tensor(tokens)]
                both = torch.cat([self._normed(e, "enorm"), self._normed(h, "hnorm")], -1)
                x = both @ self.weights["eh_proj"].T
                positions = torch.arange(1, len(tokens) + 1)[None]
                after = self._run(self.layer, inputs_embeds=x[None], position_ids=positions)
                last = self.layer.model.norm(after[-1]) if self.glm else after[-1]
                row = self.model.lm_head(last)
                logits.append(row.numpy())
                found.append(int(row.argmax()))
                tokens, h = [*tokens, found[-1]], torch.cat([h, after[-1:]])
        return found, logits
