"""What a server tells Prometheus."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from helpers.serving import LONG_CHAT, Server

from triplepoint.runtime.serve.models.events import Done
from triplepoint.runtime.serve.requests import meter
from triplepoint.runtime.serve.requests.meter import Meters
from triplepoint.runtime.serve.requests.registry import Histogram, sample
from triplepoint.runtime.serve.requests.request_record import RequestRecord
from triplepoint.runtime.serve.settings import Limits

_SAMPLE = re.compile(r'([a-z0-9_:]+)(\{[a-z_]+="[^"\n]*"(?:,[a-z_]+="[^"\n]*")*\})? (\S+)')


def scrape(server: Server) -> dict[str, float]:
    """Every sample by its name with its labels; the text has to be Prometheus'."""
    answer = server.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in answer.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, f"{name} is there twice"
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = _SAMPLE.fullmatch(line)
            assert match, line
            base = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert match[1] in kinds or kinds[base] == "histogram", line
            assert (match[1] + (match[2] or "")) not in found, line
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


def test_counts_are_those_of_the_answers(server: Server) -> None:
    """Tokens, cached ones, ends and latencies of two requests stand there as their usage says."""
    server.idle()
    before = scrape(server)
    text = "the same words for both of them, and enough of them to be found again"
    usages = [server.chat(text, max_tokens=8).json()["usage"] for _ in range(2)]
    server.idle()
    after = scrape(server)

    def grown(name: str, labels: str = '{model_name="nano"}') -> float:
        return after[name + labels] - before.get(name + labels, 0)

    assert grown("vllm:prompt_tokens_total") == sum(u["prompt_tokens"] for u in usages)
    assert grown("vllm:generation_tokens_total") == sum(u["completion_tokens"] for u in usages)
    cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
    assert grown("vllm:prefix_cache_hits_total") == cached > 0
    assert grown("llamacpp:tokens_predicted_total", "") == grown("vllm:generation_tokens_total")
    computed = sum(u["prompt_tokens"] for u in usages) - cached
    assert grown("llamacpp:prompt_tokens_total", "") == computed
    assert grown("llamacpp:prompt_seconds_total", "") > 0
    assert grown("llamacpp:tokens_predicted_seconds_total", "") > 0
    assert grown("llamacpp:n_decode_total", "") > 2
    for name in (
        "vllm:time_to_first_token_seconds",
        "vllm:e2e_request_latency_seconds",
        "vllm:request_queue_time_seconds",
    ):
        assert grown(f"{name}_count") == 2
    ends = [name for name in after if name.startswith("vllm:request_success_total")]
    assert sum(after[name] - before.get(name, 0) for name in ends) == 2
    regimes = [name for name in after if name.startswith("triplepoint_phases_total{")]
    assert sum(after[name] - before.get(name, 0) for name in regimes) == 4
    assert after['vllm:num_requests_running{model_name="nano"}'] == 0
    assert after['triplepoint_kv_budget_bytes{model_name="nano"}'] > 0


def test_tokens_count_as_they_come(server: Server) -> None:
    """Those of an answer that nobody waits for the end of, too; also for the line's prediction."""
    server.idle()
    name = 'vllm:generation_tokens_total{model_name="nano"}'
    before = scrape(server).get(name, 0.0)
    with server.client.stream(
        "POST", "/v1/chat/completions", json={**LONG_CHAT, "stream": True}
    ) as answer:
        lines = answer.iter_lines()
        while '"content":"' not in next(lines):  # that of the first chunk is null
            pass
        (place,) = server.service.line._running
        assert place.written() > 0
        (told,) = [one for one in server.client.get("/slots").json() if one["is_processing"]]
        assert told["n_decoded"] > 0
        assert server.service.metrics.rates()["generation"] > 0
    server.idle()
    last = server.service.metrics.records()[-1]
    found = scrape(server)

    assert last.state == "cancelled"
    assert found[name] - before == last.tokens > 0
    assert last.written[0][1] > 0


def test_a_long_prompt_counts_while_it_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not its client wants to know how far it is."""
    read: list[int] = []
    counted = RequestRecord.reading

    def reading(self: RequestRecord, computed: int, seconds: float) -> None:
        read.append(computed if self.read is None else -1)
        counted(self, computed, seconds)

    monkeypatch.setattr(RequestRecord, "reading", reading)
    used = server.chat("a word " * 700, max_tokens=1).json()["usage"]

    assert read == sorted(read)
    assert len(read) > 1
    cached = used["prompt_tokens_details"]["cached_tokens"]
    assert read[-1] == used["prompt_tokens"] - cached


def test_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """What took long counts for the part of it that is within the last seconds."""
    now = [100.0]
    monkeypatch.setattr(meter, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    meters = Meters()
    record = RequestRecord("nano", meters)
    record.reading(400, 4.0)
    assert meters.prompt.rate() == pytest.approx(40.0)
    record.wrote(0, 1, 0.1)
    record.wrote(0, 3, 0.3)
    record.wrote(1, 7, 0.3)
    assert meters.generation.rate() == pytest.approx(1.0)
    now[0] += meter.RATE_S - 1.0
    assert meters.prompt.rate() == pytest.approx(10.0)
    record.heard(Done(0, "stop", 3, 0, 0.4))
    now[0] += 2.0
    assert (meters.prompt.rate(), meters.generation.rate()) == (0.0, 0.0)
    assert record.tokens == 10


@pytest.mark.slow
def test_counters_of_engines_outlive_them(start: Callable[..., Server]) -> None:
    """They do not fall when a model is let go of; two names of one file are two models."""
    server = start(models={"a": "nano", "b": "nano"}, keep_alive_s=0.01)
    server.wait()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: server.chat(f"number {n}", max_tokens=40, model="b"), range(4)))
    server.idle()
    before = scrape(server)
    time.sleep(0.02)
    server.service.models.let_go_idle()
    after = scrape(server)

    assert not server.service.models.loaded()
    counters = [name for name in before if name.partition("{")[0].endswith("_total")]
    assert {name: after[name] for name in counters} == {name: before[name] for name in counters}
    assert after["llamacpp:n_decode_total"] > 2
    assert 'triplepoint_kv_used_bytes{model_name="b"}' not in after
    shared = [name for name in after if name.startswith("triplepoint_shared_passes_total{")]
    assert all('model_name="b"' in name for name in shared if after[name])
    server.chat(model="b", max_tokens=2)
    name = 'triplepoint_passes_total{model_name="b"}'
    assert scrape(server)[name] > before[name]


def test_shared_passes_say_what_ended_them(server: Server) -> None:
    """Requests at once share passes, and each of these has a reason, a time and a prediction."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: server.chat(f"number {n}", max_tokens=40), range(4)))
    server.idle()
    found = scrape(server)

    passes = {k: v for k, v in found.items() if k.startswith("triplepoint_shared_passes_total{")}
    engine = server.service.models.loaded()[0].engine
    assert sum(passes.values()) == engine.core.runner.shared > 0
    assert all('end="' in name for name in passes)
    ratio = 'triplepoint_shared_pass_prediction_ratio_count{model_name="nano"}'
    assert found[ratio] == engine.core.runner.shared


def test_failures_are_counted_by_status(server: Server) -> None:
    """One that is too long counts; a name that a client made up never becomes a label."""
    server.chat(model="made up")
    server.chat("word " * 10_000)
    server.idle()
    found = scrape(server)

    assert found['triplepoint_requests_failed_total{model_name="nano",status="400"}'] >= 1
    assert not [name for name in found if "made up" in name]


def test_a_histogram_counts_up_to_its_bounds() -> None:
    """Buckets are cumulative, a value on a bound belongs to it, and labels are escaped."""
    one = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 99):
        one.observe(value)

    assert list(one.samples("h", (("m", 'a"b\\'),))) == [
        'h_bucket{m="a\\"b\\\\",le="1"} 2',
        'h_bucket{m="a\\"b\\\\",le="2.5"} 3',
        'h_bucket{m="a\\"b\\\\",le="+Inf"} 4',
        'h_sum{m="a\\"b\\\\"} 102.5',
        'h_count{m="a\\"b\\\\"} 4',
    ]
    assert sample("g", (), 0.1) == "g 0.1"


def test_who_waits_is_not_running(start: Callable[..., Server]) -> None:
    """With one place, a second request waits: that is its queue time, and shows beside."""
    server = start(limits=Limits(parallel=1))
    server.wait()
    engine = server.service.models.loaded()[0].engine
    names = [f'vllm:num_requests_{name}{{model_name="nano"}}' for name in ("running", "waiting")]

    def shown() -> list[float]:
        found = scrape(server)
        return [found[name] for name in names]

    with ThreadPoolExecutor(2) as pool:
        until = time.monotonic() + 30
        with engine.loaded.lock:  # no pass runs
            asked = [pool.submit(server.chat, f"number {n}") for n in range(2)]
            while shown() != [1, 1]:
                assert time.monotonic() < until, shown()
                time.sleep(0.01)
        assert [one.result().status_code for one in asked] == [200, 200]
    server.idle()

    assert shown() == [0, 0]
    first, second = sorted(server.service.metrics.records(), key=lambda one: one.started)
    assert second.started >= first.first
