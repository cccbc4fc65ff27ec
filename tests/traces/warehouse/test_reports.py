"""Reports: what they say of known traces, and their page in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import chromium
from helpers.many_traces import ERRORS, PHASES, TURNS, write_many

from triplepoint.errors import SettingError
from triplepoint.traces import Trace, report
from triplepoint.traces.events import AnyEvent, PhaseEvent, RunEnd, ToolEvent
from triplepoint.traces.warehouse.ingest import ingest
from triplepoint.traces.warehouse.page import page
from triplepoint.traces.warehouse.reading import Warehouse, queries
from triplepoint.traces.warehouse.reports import REPORTS, Found, chosen

from ..test_view import EVIL, hostile_trace

Rows = list[dict[str, Any]]
COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty synthetic traces and a file that is none."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    made = tmp_path_factory.mktemp("many")
    write_many(made, COUNT)
    (made / "foreign.jsonl").write_text("no trace\n")
    ingest([str(made)], made / "traces.duckdb")
    return made


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Found]:
    """What every report says of them."""
    with Warehouse(folder / "traces.duckdb") as opened:
        return {name: one.run(opened) for name, one in REPORTS.items()}


@pytest.fixture(scope="module")
def traces(folder: Path) -> list[Trace]:
    """The traces themselves."""
    return [Trace.load(path) for path in sorted(folder.glob("*/*.jsonl"))]


def by(rows: Rows, *names: str) -> dict[tuple, dict[str, Any]]:
    return {tuple(row[name] for name in names): row for row in rows}


def test_every_report_has_its_question() -> None:
    """Reports and SQL are the same, and names that are not among them are refused."""
    assert {*REPORTS, "views"} == queries().keys()
    assert [one.name for one in chosen(["turns", "phases", "turns"])] == ["turns", "phases"]
    with pytest.raises(SettingError, match="choose from overview, phases"):
        chosen(["speed"])


@pytest.mark.slow
def test_sums_are_those_of_the_traces(found: dict[str, Found], traces: list[Trace]) -> None:
    """Phases, tokens and times are counted once in each report."""
    phases = [phase for trace in traces for phase in trace.phases]
    everything = sum(phase.wall_s for phase in phases)
    for name in ("phases", "regimes"):
        assert sum(row["phases"] for row in found[name].rows) == COUNT * PHASES
        assert sum(row["tokens"] for row in found[name].rows) == sum(p.tokens for p in phases)
    for name in ("phases", "regimes", "models", "machines"):
        rows = found[name].rows
        assert sum(row["time_s"] for row in rows) == pytest.approx(everything)
        assert sum(row["time_share"] for row in rows) == pytest.approx(1)
    for name in ("models", "machines"):
        assert sum(row["turns"] for row in found[name].rows) == COUNT * TURNS
    overview = by(found["overview"].rows, "status")
    assert (overview["ok",]["phases"], overview["foreign",]["files"]) == (COUNT * PHASES, 1)


def test_regimes_are_those_of_one_trace(tmp_path: Path, traces: list[Trace]) -> None:
    """The report over one trace says what `trace show` says."""
    path = traces[5].path
    assert path is not None
    ingest([str(path)], tmp_path / "one.duckdb")
    with Warehouse(tmp_path / "one.duckdb") as opened:
        rows = REPORTS["regimes"].run(opened).cells()

    shown = report.by_regime(traces[5]).rows
    assert [tuple(row[:4]) for row in rows] == [tuple(row[:4]) for row in shown]


def test_tokens_of_tools(found: dict[str, Found], traces: list[Trace]) -> None:
    """All that was written to call and read of results belongs to some tool."""
    phases = [phase for trace in traces for phase in trace.phases]
    rows = found["tools"].rows
    wrote = sum(p.tokens for p in phases if p.purpose == "tool_call")
    read = sum(p.tokens for p in phases if p.purpose == "tool_result")

    assert sum(row["call_tokens"] for row in rows) == pytest.approx(wrote)
    assert sum(row["result_tokens"] for row in rows) == pytest.approx(read)
    assert sum(row["calls"] for row in rows) == sum(len(trace.tools) for trace in traces)


def test_failures(found: dict[str, Found], traces: list[Trace]) -> None:
    """Each kind of error once, without what differs; runs that have no end are unfinished."""
    rows = by(found["failures"].rows, "what", "kind")
    errors = [tool.error for trace in traces for tool in trace.tools if tool.error]
    kinds = {key[1].partition(": ")[2] for key in rows if key[0] == "tool call"}

    assert sum(r["number"] for k, r in rows.items() if k[0] == "tool call") == len(errors)
    assert kinds <= {"no such file", "the pattern is empty", "… is before …"}
    assert len(kinds) == len({error for error in errors if error in ERRORS})
    ends = [trace.end.status if trace.end else "unfinished" for trace in traces]
    assert rows["question", "unfinished"]["number"] == ends.count("unfinished") == 2
    stopped = [row for key, row in rows.items() if "stopped" in key[1]]
    assert sum(row["number"] for row in stopped) == 3
    assert rows["file", "foreign"]["share"] == pytest.approx(1 / (COUNT + 1))


def test_transitions(found: dict[str, Found], traces: list[Trace]) -> None:
    """From each regime, shares that make one; as many changes as the traces have pairs."""
    rows, columns = found["transitions"].rows, found["transitions"].columns
    names = [column.name for column in columns[2:]]

    assert [row["from"] for row in rows] == names
    assert sum(row["all"] for row in rows) == COUNT * (PHASES - 1)
    for row in rows:
        assert sum(row[name] for name in names) == pytest.approx(1)
    changes = sum(len(trace.transitions) for trace in traces)
    same = sum(row["all"] * row[row["from"]] for row in rows)
    assert COUNT * (PHASES - 1) - same == pytest.approx(changes)


def test_prediction_error(found: dict[str, Found]) -> None:
    """The generator's phases take 0.8 to 1.5 times what was predicted."""
    for row in found["predictions"].rows:
        assert 0.8 <= row["p10"] <= row["median"] <= row["p90"] <= row["p99"] <= 1.5
        assert 0 < row["mean_error"] < 0.35
        assert row["predicted_by"] == "calibration"


def test_single_turns(found: dict[str, Found], traces: list[Trace]) -> None:
    """The slowest first; computed again is what the phases say, with its reason."""
    slowest = [row["wall_s"] for row in found["turns"].rows]
    assert slowest == sorted(slowest, reverse=True)
    assert len(slowest) == 20
    for row in found["turns"].rows:
        assert row["engine_s"] + row["tool_s"] <= row["wall_s"] + 1e-6
    dropped = sum(p.reread_tokens for trace in traces for p in trace.phases)
    assert dropped > 20 * 40
    assert {row["reread_tokens"] for row in found["rereads"].rows} == {40}
    assert {row["label"] for row in found["rereads"].rows} == {"thinking"}


# --- the page


def write_page(path: Path, found: dict[str, Found]) -> Path:
    text = page("Traces", "61 files", [(REPORTS[name], rows) for name, rows in found.items()])
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_page_in_a_browser(
    browser: chromium.Chromium, tmp_path: Path, found: dict[str, Found]
) -> None:
    """Every report is a section with its rows; readable in light and dark; nothing is loaded."""
    path = write_page(tmp_path / "report.html", found)
    colors = []
    for dark in (False, True):
        browser.open(path, dark=dark)
        assert browser.complaints == []
        assert browser.requests == [path.as_uri()]
        colors.append(browser.value(_CONTRAST))
        assert min(colors[-1]) > 4.5
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    for name, rows in found.items():
        assert browser.value(f"document.querySelectorAll('#{name} tbody tr').length") == len(
            rows.rows
        )
        assert browser.value(f"document.querySelector('nav a[href=\"#{name}\"]') !== null")
    widest = browser.value(
        "Math.max(...[...document.querySelectorAll('#regimes td.bar rect')]"
        ".map((n) => n.getBoundingClientRect().width / n.parentNode.clientWidth))"
    )
    assert widest == pytest.approx(1, abs=0.02)
    heat = "document.querySelectorAll('#transitions td.heat rect').length"
    assert browser.value(heat) == len(found["transitions"].rows) ** 2


_CONTRAST = """(() => {
  const light = (color) => {
    const [r, g, b] = color.match(/\\d+/g).map((x) => x / 255)
      .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pane = light(getComputedStyle(document.querySelector('section')).backgroundColor);
  return ['td', 'th', 'h2', '.quiet', 'summary', 'a'].map((s) => {
    const text = light(getComputedStyle(document.querySelector(s)).color);
    return (Math.max(text, pane) + 0.05) / (Math.min(text, pane) + 0.05);
  });
})()"""


@pytest.mark.slow
def test_hostile_text_is_text(
    run_events: list[AnyEvent],
    tmp_path: Path,
    browser: chromium.Chromium,
    ingested: Callable[[list[Trace]], Path],
) -> None:
    """Whatever stands in a trace, the page has only its own elements, and says it."""
    target = ingested([hostile_trace(run_events, text) for text in EVIL])
    with Warehouse(target) as opened:
        found = {name: one.run(opened, 1000) for name, one in REPORTS.items()}
    path = write_page(tmp_path / "report.html", found)

    text = path.read_text(encoding="utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", text)
    assert not re.search(r"(?i)<(script|img|svg on|!--)", text)
    browser.open(path)
    assert browser.complaints == []
    assert browser.value("document.querySelectorAll('script, img, iframe, object').length") == 0
    tools = browser.value("document.querySelector('#tools').innerText")
    assert "<img src=x onerror=alert(1)>" in tools


@pytest.fixture
def ingested(tmp_path: Path) -> Callable[[list[Trace]], Path]:
    """Writes traces, and gives the database that they are in."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")

    def put(given: list[Trace]) -> Path:
        folder = tmp_path / "given"
        folder.mkdir()
        for number, trace in enumerate(given):
            with Trace.to_file(folder / f"{number}.jsonl") as file:
                for event in trace.events:
                    file.write(event)
        ingest([str(folder)], tmp_path / "given.duckdb")
        return tmp_path / "given.duckdb"

    return put


def test_odd_runs(run_events: list[AnyEvent], ingested: Callable[[list[Trace]], Path]) -> None:
    """Redacted, denied, repeated, killed and remote: every report has an answer."""
    call = next(event for event in run_events if isinstance(event, ToolEvent))
    call.error, call.decision, call.decided_by = "denied", "denied", "read-only"
    phases = [event for event in run_events if isinstance(event, PhaseEvent)]
    phases[-1].finish_reason = "repetition"
    for one in phases:
        one.predicted = one.observed = "unknown"
    del run_events[-1]
    assert not [event for event in run_events if isinstance(event, RunEnd)]
    target = ingested([Trace(run_events), Trace(run_events[:1])])
    with Warehouse(target) as opened:
        found = {name: one.run(opened) for name, one in REPORTS.items()}

    kinds = {(row["what"], row["kind"]) for row in found["failures"].rows}
    assert kinds == {
        *(("question", "unfinished"), ("reply", "repetition")),
        ("tool call", "read_file: denied by read-only"),
    }
    regimes = {row["regime"] for row in found["regimes"].rows}
    assert regimes == {"remote prefill", "remote decode"}
    assert found["regimes"].rows[0]["as_predicted"] is None
    assert found["predictions"].rows == []
    assert page("t", "a", [(REPORTS[name], rows) for name, rows in found.items()])
