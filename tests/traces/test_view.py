"""The page: self-contained, safe with hostile content, and usable in a browser."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import chromium

from triplepoint.traces import Trace
from triplepoint.traces.events import (
    AnyEvent,
    MessageEvent,
    PhaseEvent,
    RunStart,
    ShareRecord,
    ToolEvent,
)
from triplepoint.traces.html_page import asset, embedded
from triplepoint.traces.spans import of_runs
from triplepoint.traces.view import Run, Texts, page

from .conftest import shared_pass
from .test_writer import HOSTILE

EVIL = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]><svg onload=alert(1)>",
    "javascript:alert(1)",
    "%%DATA%%",
    "&lt;b&gt; &amp;",
    "__proto__",
    "constructor",
    *HOSTILE,
]
TURNS = 200


def long_trace(turns: int = TURNS) -> Trace:
    """A run of many turns, each with a call that returns some kilobytes."""
    chance = random.Random(5)
    trace = Trace()
    bounds = ("compute", "memory", "dispatch")
    grid = {"tokens": [1, 8, 64, 512], "kv": [1, 100, 10_000]}
    header: dict[str, Any] = {"model": {"name": "qwen3-0.6b", "quant": "Q4_0"}, "threads": 8}
    header["regime_map"] = {**grid, "bounds": ["mmm", "dmm", "ccm", "ccc"]}
    trace.write(RunStart.model_validate({**header, "target": "avx512-bf16", "ts": 1000.0}))
    kv, now = 0, 1000.0

    def add(event: AnyEvent, seconds: float) -> None:
        nonlocal now
        now += seconds
        event.ts = now
        trace.write(event)

    def phase(kind: str, purpose: str, tokens: int, turn: int, step: int) -> None:
        nonlocal kv
        wall = tokens / (900 if kind == "prefill" else 24) * chance.uniform(0.8, 1.3)
        body = {"phase": kind, "purpose": purpose, "tokens": tokens, "kv_before": kv}
        body |= {"predicted": chance.choice(bounds), "observed": chance.choice(bounds)}
        body |= {"kv_after": kv + tokens, "wall_s": wall, "turn": turn, "step": step}
        body |= {"mfu": 0.5, "mbu": 0.7, "dispatch_share": 0.1, "passes": 1, "flops": 1e9}
        body |= {"predicted_s": {"compute": wall / 2, "memory": wall / 3, "dispatch": wall / 50}}
        kv += tokens
        add(PhaseEvent.model_validate(body), wall)

    for n in range(1, turns + 1):
        add(MessageEvent(role="user", content=f"Question {n}?", turn=n, step=1), 0.01)
        phase("prefill", "prompt", 220, n, 1)
        add(MessageEvent(role="assistant", content="<tool_call>", turn=n, step=1), 0.01)
        phase("decode", "tool_call", 30, n, 1)
        result = "".join(f"{n}.{k}: a line of a log file\n" for k in range(100))
        call = ToolEvent(name="read_file", arguments={"n": n}, result=result, turn=n, step=1)
        call.duration_s = 0.02
        add(call, 0.03)
        phase("prefill", "tool_result", 5000 // turns + 100, n, 2)
        add(MessageEvent(role="assistant", content=f"Answer {n}.", turn=n, step=2), 0.01)
        phase("decode", "answer", 40, n, 2)
    return trace


def hostile_trace(run_events: list[AnyEvent], text: str) -> Trace:
    """The small run with a text wherever a text may stand."""

    def poisoned(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            more = {text: 0.5 if name in ("predicted_s", "bound_shares") else text}
            more = {} if "\ud800" in text else more  # no key may be a lone surrogate
            return {key: poisoned(item, key) for key, item in value.items()} | more
        if isinstance(value, list):
            return [poisoned(item) for item in value]
        fixed = {"event", "phase", "predicted", "observed", "status", "role"}
        return text if isinstance(value, str) and name not in fixed else value

    events = []
    for event in run_events:
        body = event.model_dump()
        clean = {key: poisoned(value, key) for key, value in body.items()}
        events.append(type(event).model_validate(clean))
    return Trace(events)


# --- the file


def test_the_page_names_no_address(run_events: list[AnyEvent]) -> None:
    """Nothing in it could be fetched but the namespace that is a name only."""
    text = page([Trace(run_events)])

    addresses = set(re.findall(r"[a-z]+://[^\"'\s)]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text
    assert "unsafe" not in re.findall(r'content="(default-src[^"]*)"', text)[0]


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_hostile_text_stays_in_the_data(run_events: list[AnyEvent], text: str) -> None:
    """Whatever stands in a trace, the page has as many elements as without it."""
    trace = hostile_trace(run_events, text)

    made, plain = page([trace]), page([Trace(run_events)])

    assert made.lower().count("<script") == plain.lower().count("<script")
    assert made.count("</") == plain.count("</")
    assert made.count("<!") == plain.count("<!")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", made)


def test_embedded_json_reads_back() -> None:
    """It is JSON without the characters that markup is made of; numbers that are none are null."""
    value = {"a": ["</script>", "<!--", "&amp;", "\u2028", "é"], "n": [float("nan"), 1.5, None]}

    text = embedded(value)

    assert not set("<>&") & set(text)
    shown = ["</script>", "<!--", "&amp;", "\\u2028", "é"]
    assert json.loads(text) == {"a": shown, "n": [None, 1.5, None]}


def test_results_of_a_clients_tools_are_shown(run_events: list[AnyEvent]) -> None:
    """A request has no calls of its own, so that its `tool` messages repeat nothing."""
    result = MessageEvent(role="tool", content="a client's result", turn=1)
    served = [event for event in run_events if not isinstance(event, ToolEvent)]

    assert "a client's result" in page([Trace([*served[:2], result, *served[2:]])])
    assert "a client's result" not in page([Trace([*run_events[:5], result, *run_events[5:]])])


def test_a_long_chat_is_gone_through_once() -> None:
    """Not once for each of its turns, of which there may be thousands."""

    class Counted(list[AnyEvent]):
        rounds = 0

        def __iter__(self) -> Iterator[AnyEvent]:
            Counted.rounds += 1
            return super().__iter__()

    found: list[int] = []
    for turns in (3, 30):
        events = Counted(
            MessageEvent(role="user", content=f"Number {turn}?", turn=turn, run="a")
            for turn in range(1, turns + 1)
        )
        trace = Trace(events)
        (span,) = of_runs(trace)
        span.log = trace
        Counted.rounds = 0
        data = Run(span, Texts()).data()
        assert len(data["turns"]) == len(data["items"]) == turns
        found.append(Counted.rounds)
    assert found[0] == found[1]


def test_texts_stand_once(run_events: list[AnyEvent]) -> None:
    """A result that many calls return is in the page once."""
    trace = Trace([*run_events])
    call = next(e for e in run_events if isinstance(e, ToolEvent))
    for _ in range(20):
        trace.write(call.model_copy(update={"result": "long " * 1000, "seq": len(trace.events)}))

    assert page([trace]).count("long " * 1000) == 1


# --- in a browser


@pytest.fixture(scope="module")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of 200 turns."""
    path = tmp_path_factory.mktemp("pages") / "long.html"
    path.write_text(page([long_trace()]), encoding="utf-8")
    return path


def selected(browser: chromium.Chromium) -> dict[str, Any]:
    """Which row, message and mark are selected, and what the details say."""
    return browser.value(
        """(() => {
          const text = (node) => node ? node.innerText : null;
          const all = (s) => [...document.querySelectorAll(s)];
          return {
            row: all('.row').findIndex((n) => n.classList.contains('selected')),
            rows: all('.row.selected').length,
            message: text(document.querySelector('.message.selected')),
            point: all('.point.selected').length,
            mark: all('.ribbon .leaf.selected').length,
            detail: text(document.querySelector('#detail h2')),
          };
        })()"""
    )


def test_it_loads_without_a_complaint(browser: chromium.Chromium, long_page: Path) -> None:
    """No exception, no violated policy, no request but for itself; all 200 turns are there."""
    browser.open(long_page)

    assert browser.complaints == []
    assert browser.requests == [long_page.as_uri()]
    assert browser.value("document.documentElement.dataset.ready") == "yes"
    assert browser.value("document.querySelectorAll('#talk .turn').length") == TURNS
    assert browser.value("document.querySelectorAll('.row').length") == TURNS * 5
    assert browser.value("document.querySelectorAll('.point').length") == TURNS * 4


@pytest.mark.slow
def test_a_click_on_a_phase_selects_its_message(
    browser: chromium.Chromium, long_page: Path
) -> None:
    """The message comes into view; a click on a message or a mark selects the phase."""
    browser.open(long_page)
    browser.click("#phases .turn:nth-of-type(1) .row:nth-of-type(4)")

    now = selected(browser)
    assert (now["row"], now["rows"], now["point"], now["mark"]) == (3, 1, 1, 1)
    assert now["message"].startswith("read_file(n=1)")
    assert "tool result" in now["detail"]

    browser.click("#talk .turn:nth-of-type(1) .message.user .role")
    assert selected(browser)["row"] == 0
    assert selected(browser)["message"].startswith("user")

    browser.value("document.querySelectorAll('#phases .row')[997].click()")
    now = selected(browser)
    assert (now["row"], now["detail"]) == (997, "◇ read_file")
    inside = browser.value(
        "(() => { const a = document.querySelector('.message.selected').getBoundingClientRect(),"
        " b = document.querySelector('#talk').getBoundingClientRect();"
        " return a.top >= b.top && a.top < b.bottom; })()"
    )
    assert inside


@pytest.mark.slow
def test_keys_walk_through_the_run(browser: chromium.Chromium, long_page: Path) -> None:
    """j, k and arrows step, h and l go by turns, Enter unfolds, t changes the theme, ? helps."""
    browser.open(long_page)
    rows = []
    for key in ("j", "j", "ArrowDown", "k", "ArrowUp", "l", "ArrowRight", "h", "G", "j", "g", "k"):
        browser.key(key)
        rows.append(selected(browser)["row"])
    assert rows == [1, 2, 3, 2, 1, 5, 10, 5, 999, 999, 0, 0]

    for _ in range(2):
        browser.key("j")
    closed = "document.querySelector('.message.selected pre') === null"
    assert browser.value(closed), "a result is folded, and not even made"
    browser.key("Enter")
    opened = "document.querySelector('.message.selected pre')?.textContent || ''"
    browser.wait(lambda: "1.99: a line of a log file" in browser.value(opened))

    color = "getComputedStyle(document.querySelector('{}')).color"
    assert browser.value(color.format(".message.selected pre")) == browser.value(
        color.format("body")
    ), "a result is text, not a mark of its kind"

    before = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.key("t")
    assert browser.value("getComputedStyle(document.body).backgroundColor") != before
    browser.key("?")
    assert browser.value("document.querySelector('#help').open")
    browser.key("Escape")
    browser.wait(lambda: not browser.value("document.querySelector('#help').open"))
    assert browser.complaints == []


@pytest.mark.slow
def test_hostile_content_is_text(
    browser: chromium.Chromium, tmp_path: Path, run_events: list[AnyEvent]
) -> None:
    """Many runs of hostile texts in one page: each is shown as it is, and nothing of it runs."""
    traces = [hostile_trace(run_events, text) for text in EVIL]
    path = tmp_path / "hostile.html"
    path.write_text(page(traces), encoding="utf-8")

    browser.open(path)
    for n in range(len(traces)):
        if n:
            browser.key("]")
        for _ in range(6):
            browser.key("Enter")
            browser.key("j")
        assert browser.value("document.querySelectorAll('script').length") == 2
        assert browser.value("document.querySelectorAll('img, iframe, object, link').length") == 0

    assert browser.complaints == []
    assert browser.requests == [path.as_uri()]
    browser.value("showRun(0)")
    assert browser.value("document.querySelector('h1').textContent") == EVIL[0]
    assert browser.value("document.querySelectorAll('#runs option').length") == len(traces)


def test_a_run_without_anything_is_shown(browser: chromium.Chromium, tmp_path: Path) -> None:
    """A trace that was killed at once, or has only what this version does not know, still opens."""
    from triplepoint.traces.events import ModelRecord, UnknownEvent

    path = tmp_path / "empty.html"
    bare = [RunStart(model=ModelRecord(name="m")), UnknownEvent("later")]
    path.write_text(page([Trace([bare[0]]), Trace([bare[1]]), Trace()]), encoding="utf-8")

    browser.open(path)

    assert browser.complaints == []
    assert "No phase was recorded" in browser.value("document.querySelector('#detail').innerText")


def agents(count: int) -> list[Trace]:
    """Runs that went on at the same time, and had passes together."""
    found = []
    for n in range(count):
        made = long_trace(2)
        for event in made.events:
            event.run, event.ts = f"run {n}", event.ts + 0.5 * n
        decode = made.phases[-1]
        decode.shared = ShareRecord(passes=2, sequences=3.0, seconds=0.1)
        passes = [
            shared_pass(k, [1] * count, n, ts=decode.ts - 0.01 * (2 - k), run=decode.run)
            for k in (1, 2)
        ]
        at = made.events.index(decode)
        found.append(Trace([*made.events[:at], *passes, *made.events[at:]]))
    return found


def _function(name: str) -> str:
    """The text of a function of the viewer's script."""
    found = re.search(rf"^function {name}\(.*?^}}$", asset("view.js"), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[0]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_runs_at_once_are_found_in_one_pass() -> None:
    """Those that overlap, directly or through others, by their start; also of a large folder."""
    spans = [(0, 10), (20, 5), (9, 4), (25, 1), (12, 3), (2, 1)]
    many = 300
    script = f"""
    const runs = {json.dumps([{"at": at, "end": end} for at, end in spans])};
    let looks = 0;
    const chain = Array.from({{length: {many}}}, (_, n) => ({{
      get at() {{ looks++; return 2 * ({many} - n); }}, end: 3 }}));
    console.log(JSON.stringify([atOnce(runs), atOnce(chain)[0].length, looks]));
    """

    done = subprocess.run(
        ["node", "-e", _function("atOnce") + script], capture_output=True, check=True
    )

    groups, together, looks = json.loads(done.stdout)
    assert groups == [[0, 5, 2, 4], [1], [0, 5, 2, 4], [3], [0, 5, 2, 4], [0, 5, 2, 4]]
    assert together == many
    assert looks < 50 * many


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_agents_at_once_are_lanes(browser: chromium.Chromium, tmp_path: Path, theme: str) -> None:
    """Each agent has a lane on one axis; a click on another's phase goes there, in both themes."""
    apart = long_trace(1)
    for event in apart.events:
        event.run, event.ts = "another day", event.ts + 1e5
    path = tmp_path / "agents.html"
    path.write_text(page([*agents(3), apart]), encoding="utf-8")
    browser.open(path)
    browser.value(f"document.documentElement.dataset.theme = '{theme}'")

    count = "document.querySelectorAll('#agents {}').length"
    assert browser.value(count.format(".names button")) == 3, "a run of another time has none"
    assert browser.value(count.format("svg .leaf")) == 3 * 10
    assert browser.value(count.format("svg .together")) == 3
    ink = browser.value("getComputedStyle(document.querySelector('#agents .together')).fill")
    ground = browser.value(
        "getComputedStyle(document.querySelector('#agents svg')).backgroundColor"
    )
    assert ink != ground

    browser.value(
        "document.querySelectorAll('#agents svg .leaf')[25]"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    assert browser.value("[state.run, state.leaf]") == [2, 5]
    assert browser.value(count.format(".leaf.selected")) == 1
    current = "document.querySelectorAll('#agents [aria-current=true]')"
    assert browser.value(f"{current}.length") == 1

    browser.value("select(data.runs[2].leaves.length - 1)")
    assert "2, 3.00 sequences each" in browser.value("document.querySelector('#detail').innerText")
    browser.value("showRun(3)")
    assert browser.value("document.querySelector('#agents').hidden")
    assert browser.complaints == []
