"""Every architecture end to end: logits and greedy tokens, and the same bits however run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers.tiers import quick

from triplepoint.errors import GGUFError, UnsupportedModelError
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.forward.split_kv import SplitKVGraph

IDS = np.random.default_rng(1).integers(0, tiny.VOCAB, 150).tolist()
STEPS = 64
EXACT = 3e-5  # of the range of all logits: the same sums in float32, in another order
MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Writes each model once for each type of its matrices."""
    folder = tmp_path_factory.mktemp("architectures")

    def make(name: str, kind: str = "f32") -> Path:
        path = folder / f"{name}-{kind}.gguf"
        if not path.exists():
            tiny.write_model(path, name, kind)
        return path

    return make


def load(path: Path, **settings: Any) -> Engine:
    name = path.stem.rpartition("-")[0]
    return Engine.load(path, context=tiny.CONTEXTS.get(name), **settings)


# One with each kind of layer; the others are relatives of theirs.
TYPICAL = ("llama", "smollm3", "qwen2-yarn", "qwen3", "gemma3", "phi3-long", "granite", "olmo2")
TYPICAL += ("gpt-oss", "glm4-flash", "laguna", "gemma4-moe", "qwen35", "lfm2", "nemotron_h")


@pytest.fixture(scope="module", params=quick(tiny.CONFIGS, *TYPICAL))
def engine(request: pytest.FixtureRequest, model: MakeModel) -> Iterator[Engine]:
    """Each model in float32 on two threads."""
    with load(model(request.param), threads=2, kv="f32") as engine:
        yield engine


def _name(engine: Engine) -> str:
    return engine.model.path.stem.rpartition("-")[0]


def _chunked(session: Session, size: int) -> np.ndarray:
    """Logits after IDS, prefilled in chunks of `size`."""
    session.truncate(0)
    for at in range(0, len(IDS), size):
        session.prefill(IDS[at : at + size])
    assert session.tokens == IDS
    return session.logits.copy()


# --- the same as the reference


@pytest.mark.slow
def test_logits_and_greedy_tokens_equal_transformers(engine: Engine) -> None:
    """Logits of 213 positions are those of transformers; so is each of 64 greedy choices."""
    pytest.importorskip("torch", reason="the oracle is torch: pip install '.[oracle]'")
    pytest.importorskip(
        "transformers", reason="the oracle is transformers: pip install '.[oracle]'"
    )
    session = engine.session()
    session.prefill(IDS)
    ours = list(session.decode(max_tokens=STEPS))
    ids = [*IDS, *ours[:-1]]
    got = engine.session().logits_for(ids)
    want = tiny.torch_logits(_name(engine), ids)

    assert np.abs(got - want).max() / np.ptp(want) <= EXACT
    # Given the same tokens before it, each is what transformers would choose.
    assert ours == want[len(IDS) - 1 :].argmax(-1).tolist()


SETTINGS = [
    ("llama", "llama.rope.freq_base", 10000.0),
    ("llama", "llama.attention.layer_norm_rms_epsilon", 0.1),
    ("mistral", "llama.attention.sliding_window", 0),
    ("qwen2-yarn", "qwen2.rope.scaling.type", "none"),
    ("gemma2", "gemma2.attn_logit_softcapping", 0.0),
    ("gemma2", "gemma2.final_logit_softcapping", 0.0),
    ("gemma2", "gemma2.attention.sliding_window", 0),
    ("gemma3", "gemma3.attention.sliding_window", 41),
    ("gemma3", "gemma3.rope.freq_base_swa", 20000.0),
    ("gemma3", "gemma3.rope.scaling.factor", 1.0),
    ("gemma3", "gemma3.final_logit_softcapping", 0.0),
    ("gemma3-256", "gemma3.attention.scale", 0.0),
    ("phi3", "phi3.attention.sliding_window", 0),
    ("phi3-long", "phi3.rope.scaling.attn_factor", 1.0),
    ("phi3-long", "phi3.rope.scaling.original_context_length", 4096),
    ("granite", "granite.attention.scale", 0.0),
    ("granite", "granite.embedding_scale", 1.0),
    ("granite", "granite.residual_scale", 1.0),
    ("granite", "granite.logit_scale", 1.0),
    ("qwen3vlmoe", "qwen3vlmoe.expert_weights_norm", False),
    ("qwen3vlmoe", "qwen3vlmoe.expert_gating_func", 2),
    ("ministral3", "mistral3.attention.temperature_scale", 0.0),
    ("ministral3", "mistral3.rope.scaling.yarn_log_multiplier", 0.0),
    ("olmo3", "olmo2.attention.sliding_window", 41),
    ("olmo3", "olmo2.rope.scaling.attn_factor", 1.0),
    ("gpt-oss", "gpt-oss.attention.sliding_window", 17),
    ("gpt-oss", "gpt-oss.expert_weights_scale", 1.5),
    ("gpt-oss", "gpt-oss.rope.scaling.factor", 2.0),
    ("gemma4", "gemma4.attention.sliding_window", 41),
    ("gemma4", "gemma4.rope.freq_base_swa", 20000.0),
    ("gemma4", "gemma4.final_logit_softcapping", 0.0),
    ("gemma4-moe", "gemma4.expert_used_count", 3),
    ("glm4-flash", "deepseek2.expert_group_used_count", 4),
    ("glm4-flash", "deepseek2.expert_weights_scale", 1.0),
    ("laguna", "laguna.expert_weights_scale", 1.0),
    ("laguna", "laguna.expert_gating_func", 1),
    ("laguna", "laguna.rope.dimension_count_swa", 32),
    ("laguna", "laguna.attention.sliding_window", 41),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "key", "value"), SETTINGS)
def test_each_setting_counts(
    tmp_path: Path, model: MakeModel, name: str, key: str, value: object
) -> None:
    """Another value in the file changes the logits: so the test above is a test of it."""
    changed = tmp_path / f"{name}-f32.gguf"
    tiny.write_model(changed, name, metadata={key: value})
    logits = []
    for path in (model(name), changed):
        with load(path, threads=2, kv="f32") as engine:
            session = engine.session()
            session.prefill(IDS)
            logits.append(session.logits.copy())
    far = np.abs(logits[1] - logits[0]).max() / np.ptp(logits[0])

    assert far > 10 * EXACT


# --- promises: the same bits, whatever the way


def test_same_bits_in_any_chunks(engine: Engine) -> None:
    """Prefill in chunks of 1, 7, 64 and whole gives the same bits."""
    session = engine.session()
    want = _chunked(session, len(IDS))
    for size in (1, 7, 64):
        assert np.array_equal(_chunked(session, size), want), size


def test_same_bits_with_a_cached_prefix(engine: Engine) -> None:
    """A prompt on top of a cached prefix gives what it gives from nothing."""
    want = _chunked(engine.session(), len(IDS))
    session = engine.session()
    session.prefill(IDS[:100])
    session.prefill([5, 6, 7] * 20)
    session.truncate(100)
    phase = session.prefill(IDS[100:])

    assert phase.cached_tokens == 100
    assert np.array_equal(session.logits, want)


@pytest.mark.slow
def test_decoded_scored_and_prefilled_are_the_same(engine: Engine) -> None:
    """Tokens decoded one by one leave the logits that prefilling them leaves, and scoring them."""
    session = engine.session()
    session.prefill(IDS[:90])
    ids = [*IDS[:90], *session.decode(max_tokens=20)]
    session.prefill([])
    decoded = session.logits.copy()
    other = engine.session()
    other.prefill(ids)

    assert np.array_equal(other.logits, decoded)
    assert np.array_equal(engine.session().logits_for(ids)[-1], decoded)


def test_same_bits_on_any_threads(engine: Engine) -> None:
    """One thread gives the bits that two give."""
    with load(engine.model.path, threads=1, kv="f32") as alone:
        assert np.array_equal(_chunked(alone.session(), 64), _chunked(engine.session(), 64))


SPLIT = ("gemma3", "gemma2", "smollm3", "gpt-oss", "gemma4", "laguna", "glm4-flash")
SPLIT_OFTEN = [(name, "bf16") for name in SPLIT]
SPLIT_OFTEN += [("gemma3", "q8"), ("gpt-oss", "f32"), ("glm4-flash", "q8"), ("gpt-oss", "k16v8")]


@pytest.mark.parametrize(
    "case",
    quick(
        [(name, kv) for name in SPLIT for kv in ("bf16", "k16v8", "f32", "q8")],
        ci=SPLIT_OFTEN,
    ),
    ids=str,
)
def test_same_bits_with_attention_split(model: MakeModel, case: tuple[str, str]) -> None:
    """Attention shared out by parts of the cache gives the bits of heads alone, with windows, caps,
    sinks, heads of two shapes and keys of other layers, in prompts of one part and of two, decoded,
    verified and scored, on 1 to 3 threads."""
    name, kv = case
    ids = [*IDS, *IDS[:104], 7, 8, 9, 7, 8]
    seen = []
    for threads, split in ((1, "off"), (1, "on"), (2, "on"), (3, "on")):
        tune = {"kv_split": split}
        with load(model(name), threads=threads, kv=kv, tune=tune, draft_tokens=4) as engine:
            session = engine.session()
            for at in range(0, 200, 25):
                session.prefill(ids[at : at + 25])
            session.prefill(ids[200:])
            first = session.logits.copy()
            tokens = list(session.decode(max_tokens=16))
            session.prefill([])
            splits = [
                plan for plan in session.sequence.measured if isinstance(plan.graph, SplitKVGraph)
            ]
            assert bool(splits) == (split == "on")
            seen.append(
                (first, tokens, session.logits.copy(), engine.session().logits_for(ids[240:]))
            )
    assert np.isfinite(seen[0][0]).all()
    for other in seen[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(other, seen[0], strict=True))


QUANTIZED = (
    *("mistral", "qwen2", "gemma3", "phi3-long", "olmo3"),
    *("gpt-oss", "gemma4", "gemma4-moe", "glm4-flash"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kv", "target"),
    [
        *((name, "bf16", None) for name in QUANTIZED),
        *((name, "q8", "generic") for name in ("gemma3", "gpt-oss", "gemma4", "glm4-flash")),
        *((name, "k16v8", None) for name in ("qwen2", "gemma4", "glm4-flash")),
    ],
)
def test_same_bits_when_quantized(model: MakeModel, name: str, kv: str, target: str | None) -> None:
    """The same holds for int8 weights and each cache, in any chunks, on 1, 2 or 3 threads."""
    seen = []
    for threads, sizes in ((1, (1, 7, 64, len(IDS))), (2, (64,)), (3, (7,))):
        with load(model(name, "q8_0"), threads=threads, kv=kv, target=target) as engine:
            session = engine.session()
            seen += [_chunked(session, size) for size in sizes]
    assert np.isfinite(seen[0]).all()
    assert all(np.array_equal(logits, seen[0]) for logits in seen[1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral", "smollm3", "gemma3", "phi3-long", "gemma4"])
def test_caches_of_fewer_bits_stay_near(model: MakeModel, name: str) -> None:
    """bf16 and int8 caches move the logits a little: rotation and windows are the same there."""
    logits = {}
    for kv in ("f32", "bf16", "k16v8", "q8"):
        with load(model(name), threads=2, kv=kv) as engine:
            logits[kv] = _chunked(engine.session(), 64)
    spread = np.ptp(logits["f32"])

    assert 0 < np.abs(logits["bf16"] - logits["f32"]).max() / spread <= 0.02
    assert 0 < np.abs(logits["k16v8"] - logits["f32"]).max() / spread <= 0.04
    assert 0 < np.abs(logits["q8"] - logits["f32"]).max() / spread <= 0.06


# --- weight types

# Deviation of the logits by int8 activations, as a share of their own. Random weights make more
# noise than trained ones: these models are tiny, and little averages out.
ROUNDED = 0.1  # measured: 0.01 to 0.08


COMMON = ("f16", "q8_0", "q4_0", "q4_k", "q6_k")
RARE = ("bf16", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q5_k", "iq4_xs")
TYPES = [(name, kind) for name in tiny.WIDE for kind in COMMON]
TYPES += [(list(tiny.WIDE)[n % 3], kind) for n, kind in enumerate(RARE)]
TYPES += [(name, kind) for name in ("olmo3", "ministral3", "gemma4") for kind in ("q8_0", "q4_0")]
MIXTURES = ("gpt-oss", "gemma4-moe", "laguna", "glm4-flash")
# With experts, rounded activations tip a choice now and then: what is not rounded must be equal.
TYPES += [(name, kind) for name in MIXTURES for kind in ("f16", "bf16")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), TYPES)
def test_weight_types(tmp_path: Path, name: str, kind: str) -> None:
    """Each type of weights is near to what it stands for; what that is runs in float32.

    The common ones in all models of their width, the others in one of three in turn: those have
    biases, or fused weights, or gates of gelu.
    """
    plain, stored = tmp_path / f"{name}-f32.gguf", tmp_path / f"{name}-{kind}.gguf"
    tiny.write_model(plain, name, rounded_to=kind)
    tiny.write_model(stored, name, kind)
    want, got = [], []
    for path, logits in ((plain, want), (stored, got)):
        with load(path, threads=2, kv="f32") as engine:
            logits.append(engine.session().logits_for(IDS))
    far = np.std(got[0] - want[0]) / np.std(want[0])

    # Floats of 16 bits are multiplied as the float32 that they stand for.
    assert far == 0 if kind in ("f16", "bf16") else 0 < far <= ROUNDED, far


# --- what is refused


REFUSED = [
    ("llama", {"llama.expert_count": 8}, "llama.expert_count asks for a mixture of experts"),
    ("llama", {"llama.attention.clamp_kqv": 8.0}, "clamped queries"),
    ("qwen2", {"qwen2.attention.sliding_window": 40}, "a sliding window, which is not"),
    ("qwen2", {"qwen2.rope.scaling.type": "dynamic"}, "rope scaling 'dynamic' is not supported"),
    ("qwen3", {"qwen3.attn_logit_softcapping": 50.0}, "bounded attention scores"),
    ("llama", {"llama.attention.kv_lora_rank": 512}, "multi-head latent attention"),
    ("llama", {"llama.expert_count": [8, 8, 8]}, "llama.expert_count asks for"),
    ("llama", {"llama.attention.sliding_window_pattern": 4}, "windows in some layers"),
    ("qwen2-yarn", {"qwen2.rope.scaling.yarn_log_multiplier": 0.1}, "YaRN with a log multiplier"),
    ("qwen2", {"qwen2.rope.scaling.type": "longrope"}, "'longrope', but it has no factors"),
    ("qwen3", {"qwen3.expert_shared_count": 1}, "shared experts"),
    ("llama", {"general.type": "adapter"}, "no model, but what GGUF calls 'adapter'"),
    ("qwen2", {"qwen2.rope.dimension_count": 20}, "dimension_count = 20 is not supported"),
    ("olmo3", {"olmo2.rope.scaling.yarn_attn_factor": 1.2}, "yarn_attn_factor = 1.2 is not"),
    ("gemma4", {"gemma4.attention.scale": 0.5}, "an attention scale, which is not"),
    ("deepseek2-lite", {"deepseek2.rope.scaling.attn_factor": 1.2}, "attn_factor.? = 1.2 is not"),
    ("deepseek2-lite", {"deepseek2.attention.value_length_mla": 32}, "rows of 32: no multiple"),
    ("gemma4", {"gemma4.embedding_length_per_layer_input": 32}, "= 32 must be a multiple of 64"),
    ("llama", {f"llama.attention.{n}_length": 80 for n in ("key", "value")}, "= 80 are not sup"),
    ("qwen35", {"qwen35.ssm.state_size": 24}, "heads of 24 by 32: both must be multiples of 16"),
    ("nemotron_h", {"nemotron_h.ssm.inner_size": 320}, "heads of 40 by 32: both must be mult"),
    ("laguna", {"laguna.expert_gating_func": 4}, "= 4 is not supported; supported: 1 to 3"),
]


@pytest.mark.parametrize(("name", "metadata", "said"), REFUSED)
def test_what_is_not_supported_is_refused(
    tmp_path: Path, name: str, metadata: dict[str, Any], said: str
) -> None:
    """A key that asks for something else than what is computed is named, at once."""
    path = tmp_path / f"{name}-f32.gguf"
    tiny.write_model(path, name, metadata=metadata)
    with pytest.raises(UnsupportedModelError, match=said):
        load(path)


def test_keys_that_ask_for_nothing(tmp_path: Path, model: MakeModel) -> None:
    """A window as long as the context, or scales of 1, change nothing and are no reason."""
    path = tmp_path / "qwen2-f32.gguf"
    metadata = {"qwen2.attention.sliding_window": tiny.CONTEXT, "qwen2.logit_scale": 1.0}
    tiny.write_model(path, "qwen2", metadata=metadata)
    logits = []
    for each in (path, model("qwen2")):
        with load(each, threads=1) as engine:
            logits.append(_chunked(engine.session(), 64))

    assert np.array_equal(*logits)


@pytest.mark.parametrize(
    "metadata",
    [
        {"qwen2.rope.scale_linear": 4.0},
        {"qwen2.rope.scaling.factor": 4.0},
        {"qwen2.rope.scaling.factor": 4.0, "qwen2.rope.scaling.type": "linear"},
    ],
    ids=["old", "no type", "new"],
)
def test_linear_scaling(tmp_path: Path, model: MakeModel, metadata: dict[str, Any]) -> None:
    """Said in any of three ways, position 4 p is where p was: the first token's neighbors move."""
    path = tmp_path / "qwen2-f32.gguf"
    tiny.write_model(path, "qwen2", metadata=metadata)
    tables = []
    for each in (path, model("qwen2")):
        with load(each, threads=1) as engine:
            tables.append(engine.loaded.network.tables(64, 64)[0])
    (scaled, _), (plain, _) = tables

    assert np.allclose(scaled[::4][:16], plain[:16], atol=1e-6)
    assert not np.allclose(scaled[:16], plain[:16], atol=1e-2)


def test_a_number_for_each_layer(tmp_path: Path, model: MakeModel) -> None:
    """Sizes may stand in the file layer by layer; so said they give the bits of one for all."""
    path = tmp_path / "qwen3-f32.gguf"
    sizes = {"attention.head_count": 4, "attention.head_count_kv": 2, "feed_forward_length": 160}
    tiny.write_model(path, "qwen3", metadata={f"qwen3.{k}": [n] * 3 for k, n in sizes.items()})
    logits = []
    for each in (path, model("qwen3")):
        with load(each, threads=1) as engine:
            logits.append(_chunked(engine.session(), 64))

    assert np.array_equal(*logits)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"qwen3.attention.head_count_kv": [2, 2]}, "has 2 elements, 3 are needed"),
        ({"qwen3.attention.head_count_kv": [2, 3, 2]}, "4 heads cannot share 3 KV heads"),
        ({"qwen3.attention.head_count_kv": [0, 0, 0]}, "no layer has attention"),
        ({"qwen3.feed_forward_length": [160.0, 160.0, 160.0]}, "must hold whole numbers"),
        ({"qwen3.nextn_predict_layers": 3}, "3 layers, of which 3 only draft"),
    ],
    ids=str,
)
def test_numbers_for_layers_that_cannot_be(
    tmp_path: Path, metadata: dict[str, Any], said: str
) -> None:
    """Arrays that are too short, make no heads, or are no whole numbers are refused by key."""
    path = tmp_path / "qwen3-f32.gguf"
    tiny.write_model(path, "qwen3", metadata=metadata)

    with pytest.raises(GGUFError, match=said):
        load(path)


def test_layers_that_only_draft_are_left_out(tmp_path: Path) -> None:
    """Their tensors are no reason to refuse a file; answers are those of a file without them."""
    logits = []
    drafting = {"qwen3.nextn_predict_layers": 1}
    for number, (metadata, drop) in enumerate(
        ((drafting, None), ({"qwen3.block_count": 2}, "blk.2."))
    ):
        path = tmp_path / f"qwen3-{number}.gguf"
        tiny.write_model(path, "qwen3", metadata=metadata, drop=drop)
        with load(path, threads=1) as engine:
            assert engine.loaded.network.config.layers == len(engine.loaded.network.blocks) == 2
            logits.append(_chunked(engine.session(), 64))

    assert np.array_equal(*logits)


def test_weights_that_files_have_needlessly(tmp_path: Path, model: MakeModel) -> None:
    """Matrices of keys in layers that read another's, and a magnitude that is the usual one."""
    shared = "blk.5.attn_k.weight"
    usual = {"olmo2.rope.scaling.yarn_attn_factor": 1 + 0.1 * np.log(4.0)}
    for name, metadata, copies in (
        ("gemma4", {}, {shared: "blk.3.attn_k.weight"}),
        ("olmo3", usual, {}),
    ):
        path, logits = tmp_path / f"{name}-f32.gguf", []
        tiny.write_model(path, name, metadata=metadata, copies=copies)
        for each in (path, model(name)):
            with load(each, threads=1) as engine:
                logits.append(_chunked(engine.session(), 64))
        assert np.array_equal(*logits)


def test_layers_share_keys_and_values(model: MakeModel) -> None:
    """A layer that reads another's cache takes none: its pages are as small as that makes them."""
    with load(model("gemma4"), threads=1, kv="f32") as engine:
        config = engine.loaded.network.config
        wide, near = (2 * 2 * dim * 4 for dim in (64, 32))

        assert config.sources == (0, 1, 2, 3, 4, 3, 4)
        assert (
            engine.loaded.layout.position_bytes
            == 3 * near + 2 * wide
            == engine.loaded.cost.kv_bytes
        )


def test_one_key_for_all_heads(model: MakeModel) -> None:
    """A latent is kept once, in place of keys and values; matrices of heads are no experts."""
    with load(model("glm4-flash"), threads=1, kv="f32") as engine:
        tensors = [m for block in engine.loaded.network.blocks for m in block.matrices]

        assert engine.loaded.layout.position_bytes == 3 * 4 * (64 + 32)
        routed = sum(m.parameters for m in tensors if "exps" in m.sources[0])
        assert engine.loaded.cost.expert_weights == routed > 0
        assert engine.loaded.cost.sparse_layers == 2


def test_what_a_file_must_say(tmp_path: Path) -> None:
    """The norms' epsilon has no default: another one would change the answers without a sign."""
    path = tmp_path / "qwen3.gguf"
    key = "qwen3.attention.layer_norm_rms_epsilon"
    tiny.write_model(path, "qwen3", without=[key])

    with pytest.raises(GGUFError, match=f"missing .metadata '{key}'"):
        load(path)


def test_costs_know_the_window(engine: Engine) -> None:
    """Attention's operations count what a token sees, layer by layer."""
    cost, windows = engine.loaded.cost, engine.loaded.network.windows
    for start, tokens in ((0, 150), (30, 20), (100, 1)):
        want = sum(
            min(position + 1, window or position + 1)
            for window in windows
            for position in range(start, start + tokens)
        )
        assert cost.attended_positions(start, tokens) * cost.layers == pytest.approx(want)
