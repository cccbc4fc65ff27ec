"""Sequences that begin alike read what they share once, and every bit stays as it is alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from helpers import tiny_models, tiny_qwen3moe
from helpers.schedules import EVERYONE, Family, Go, Pass, family_schedules
from helpers.tiers import quick
from hypothesis import HealthCheck, example, given, settings

from triplepoint.jit.kernels.attention import joined_tile, token_tile
from triplepoint.jit.kernels.batch import COUNT, FROM, UNTIL, WALKS
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.request import Batch, Request
from triplepoint.runtime.engine.passes.shared_pass import SharedPass
from triplepoint.runtime.forward import kv, shared_prefix

CONTEXT = 640
MODELS = ["nano", "qwen3moe", *tiny_models.CONFIGS]
# Windows, sinks, layers that share keys, heads of two shapes, latent attention, the delta rule.
QUICK = ("nano", "gemma3", "gpt-oss", "gemma4", "glm4-flash", "qwen35")
few = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
many = settings(few, max_examples=250)


@pytest.fixture(scope="module", params=quick(MODELS, *QUICK))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Each model on two threads."""
    name = request.param
    context = CONTEXT if name == "nano" else tiny_models.CONTEXTS.get(name, 512)
    if context < 512:
        pytest.skip("its context is shorter than the sequences here")
    path = tmp_path_factory.mktemp("family") / f"{name}.gguf"
    if name == "qwen3moe":
        tiny_qwen3moe.write_tiny(path, "q8_0")
    elif name != "nano":
        tiny_models.write_model(path, name, "q8_0")
    model = name if name == "nano" else str(path)
    with pytest.MonkeyPatch.context() as patch, Engine.load(model, context=context, threads=2) as e:
        patch.setattr(kv, "SLACK", 0)  # windows let go of pages as soon as they can
        yield (found := Family(e))
        assert found.joined or e.loaded.layout.states is not None, (
            "no pass has joined any sequences"
        )


@pytest.mark.slow
@few
@given(schedule=family_schedules)
@example(schedule=EVERYONE)
def test_schedules(family: Family, schedule: list[Pass]) -> None:
    """Every architecture: logits and greedy choices are those of the sequence alone."""
    family.run(schedule)


@pytest.mark.exhaustive
@many
@given(schedule=family_schedules)
def test_many_schedules(family: Family, schedule: list[Pass]) -> None:
    """The same at length."""
    family.run(schedule)


FORMS = [
    (kv, threads, split)
    for kv in ("bf16", "k16v8", "f32", "q8")
    for threads in (1, 2, 3)
    for split in ("on", "off")
]
OFTEN = [
    ("bf16", 1, "off"), ("bf16", 2, "on"), ("bf16", 3, "off"), ("f32", 2, "off"), ("f32", 3, "on"),
    ("k16v8", 2, "on"), ("q8", 1, "on"), ("q8", 2, "off"), ("q8", 3, "on"),
]  # fmt: skip


@pytest.fixture(scope="module", params=quick(FORMS, ci=OFTEN), ids=str)
def form(request: pytest.FixtureRequest) -> Iterator[Family]:
    """nano with every cache format on one to three threads, attention split by parts or not."""
    kv, threads, split = request.param
    tune = {"kv_split": split}
    with Engine.load("nano", kv=kv, threads=threads, context=CONTEXT, tune=tune) as engine:
        yield (found := Family(engine))
        # Three threads want two tiles to share out two heads, which few examples have.
        assert found.joined or threads > 2


@few
@given(schedule=family_schedules)
@example(schedule=EVERYONE)
def test_cache_formats_and_threads(form: Family, schedule: list[Pass]) -> None:
    """Every cache format, one to three threads, split attention or not."""
    form.run(schedule)


@pytest.mark.exhaustive
@settings(few, max_examples=800)
@given(schedule=family_schedules)
def test_many_schedules_of_forms(form: Family, schedule: list[Pass]) -> None:
    """The same at length, on every cache format."""
    form.run(schedule)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("nano", threads=1, context=2048, tune={"kv_split": "off"}) as engine:
        yield engine


def _decode(engine: Engine, sequences: int, pages: int, passes: int = 1) -> list[SharedPass]:
    """Passes of one token of so many forks behind so many pages that they share."""
    first = engine.session()
    first.prefill([5 + n % 900 for n in range(pages * PAGE)])
    sessions = [first.fork() for _ in range(sequences)]
    seen: list[SharedPass] = []
    with engine.loaded.lock, engine.core.runner.observe_shared(seen.append):
        for _ in range(passes):
            batch = []
            for n, session in enumerate(sessions):
                session.tokens.append(7 + n)
                batch.append(Request(session.sequence, session.n_cached, session.tokens[-1:], 1))
            engine.core.scheduler.run(Batch.whole(*batch))
    return seen


def _pages_read(engine: Engine) -> int:
    """Pages that the tiles of the last pass read, of one KV head of one layer."""
    graph, units = engine.core.plans.prefill.graph, 0
    (units,) = (
        int(op.units[0]) // dict(op.kernel.constants)["kv_heads"]
        for op in graph.tape.ops
        if op.name == "blk.0.attention"
    )
    total = 0
    for tile in graph.tiles[:units]:
        walks = graph.tiles[tile[FROM] :][: tile[WALKS]] if tile[WALKS] else [tile]
        for walk in walks:
            end = walk[UNTIL] or -(-(walk[2] + walk[COUNT]) // PAGE)
            total += int(end - walk[FROM])
    return total


@pytest.mark.slow
@pytest.mark.parametrize("sequences", [2, 8])
def test_shared_pages_are_read_once(engine: Engine, sequences: int) -> None:
    """By what the kernels are told, and by what the pass is said to have read."""
    pages = 5
    _decode(engine, sequences, pages)
    assert _pages_read(engine) == pages + sequences, "the shared ones once, and each one's own"
    engine.core.runner.joins = False
    try:
        _decode(engine, sequences, pages)
    finally:
        engine.core.runner.joins = True
    assert _pages_read(engine) == sequences * (pages + 1)


def test_shared_pages_count_once(engine: Engine) -> None:
    """What sequences account for adds up to one read of what they share, and their own."""
    sequences, pages = 8, 5
    (done,) = _decode(engine, sequences, pages)
    model = engine.loaded.cost

    read = [done.cost(n).kv_read_bytes for n in range(sequences)]
    shared = model.kv_bytes * pages * PAGE
    assert sum(read) == pytest.approx(shared + sequences * model.kv_bytes)
    assert max(read) == pytest.approx(min(read))
    engine.core.runner.joins = False
    try:
        (alone,) = _decode(engine, sequences, pages)
    finally:
        engine.core.runner.joins = True
    assert done.expected.attention_s < alone.expected.attention_s


def test_more_than_a_tile_has_room_for(engine: Engine) -> None:
    """Two tiles read what they share twice."""
    group = engine.loaded.network.config.heads.group
    sequences = joined_tile(group) + 2
    assert sequences <= 64, "as many as a pass has room for"
    _decode(engine, sequences, 2)
    assert _pages_read(engine) == 2 * 2 + sequences


@pytest.mark.slow
def test_a_chunk_beside_decodes(engine: Engine) -> None:
    """A long prompt that begins alike reads by itself, tile by tile; decodes beside it together."""
    first = engine.session()
    ids = [5 + n % 900 for n in range(3 * PAGE)]
    first.prefill(ids)
    sessions = [first.fork() for _ in range(3)]
    rows = [40, 1, 1]
    batch = []
    for n, (session, count) in enumerate(zip(sessions, rows, strict=True)):
        session.sequence.tokens += range(9 + n, 9 + n + count)
        batch.append(Request(session.sequence, session.n_cached, session.tokens[-count:], 1))
    with engine.loaded.lock:
        results = engine.core.scheduler.run(Batch.whole(*batch))
    tiles = -(-40 // token_tile(engine.loaded.network.config.heads.group))
    assert _pages_read(engine) == 3 + 2 + 4 * tiles
    for mine, session in zip(results, sessions, strict=True):
        assert mine.logits is not None
        alone = engine.session().logits_for(session.tokens)
        assert np.array_equal(mine.logits.rows[-1], alone[-1])


@pytest.mark.slow
def test_pages_that_are_not_shared_are_found(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counterexample: were pages taken for shared that are not, a schedule tells."""
    family = Family(engine)
    monkeypatch.setattr(shared_prefix, "_common", lambda a, b: min(len(a), len(b)))
    family.ids[3] = [*family.ids[0][:PAGE], *reversed(family.ids[0][PAGE:])]
    family.want[3] = engine.session().logits_for(family.ids[3])
    taken = family.first.fork(PAGE)
    taken.prefill(family.ids[3][PAGE : 2 * PAGE])
    begin = family.begin
    monkeypatch.setattr(family, "begin", lambda n: taken.fork() if n == 3 else begin(n))
    together: list[Pass] = [{n: Go(1, 1) for n in range(5)}]
    with pytest.raises(AssertionError, match="sequence"):
        family.run(together)
