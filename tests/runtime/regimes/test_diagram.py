"""The phase diagram: lines, triple points, a run's path, pictures."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from helpers.chromium import Chromium

from triplepoint.runtime.cli.regimes import _LEAST_CONTEXT
from triplepoint.runtime.physics.calibration import Calibration
from triplepoint.runtime.physics.costs import AttentionLayers
from triplepoint.runtime.physics.latency_model import Efficiency
from triplepoint.runtime.regimes import diagram as regimes
from triplepoint.runtime.regimes import html as regime_page
from triplepoint.runtime.regimes import svg as regime_picture
from triplepoint.runtime.regimes.blocks import blocks
from triplepoint.runtime.regimes.diagram import Diagram, Picture, diagram, steps
from triplepoint.runtime.regimes.facts import experts_touched, facts, kind_of
from triplepoint.traces import Trace
from triplepoint.traces.events import PhaseEvent

from ..physics.test_latency_model import MACHINE, MODEL, PASSES

SVG = "{http://www.w3.org/2000/svg}"


def by_hand() -> Diagram:
    """Shares of planes: memory left, compute right, dispatch above; all equal at (5, 5)."""
    axis = np.linspace(0, 10, 41)
    x, y = np.meshgrid(axis, axis)
    shares = np.stack([0.3 + 0.02 * (x - 5), 0.3 - 0.02 * (x - 5), 0.3 + 0.03 * (y - 5)])
    return Diagram(axis, axis, shares, 2.0 ** (x + 1), np.ones_like(x, bool), 1 << 20)


def phase(name: str, tokens: int, before: int, observed: str) -> PhaseEvent:
    return PhaseEvent(
        phase=name,  # pyright: ignore[reportArgumentType]
        predicted="compute",
        observed=observed,  # pyright: ignore[reportArgumentType]
        tokens=tokens,
        kv_before=before,
        kv_after=before + tokens,
        wall_s=0.5,
    )


RUN = Trace(
    [
        phase("prefill", 90, 0, "compute"),
        phase("decode", 20, 90, "memory"),
        phase("prefill", 30, 110, "dispatch"),
        phase("decode", 10, 140, "dispatch"),
    ]
)


def picture() -> Picture:
    """The model of the expectation's tests, small enough to have all three regimes."""
    tiny = dataclasses.replace(
        MODEL, body_weights=1_600_000, body_bytes=900_000, head_weights=400_000, head_bytes=225_000
    )
    reached = Efficiency(barrier_s=2e-6, row_s=2e-7, decode_rows_s=2e-7)
    found = Calibration("tiny", reached, PASSES, MACHINE, "")
    drawn = diagram(tiny, found, 4096)
    return Picture("A <model> & its\x1b regimes", ["first", "second"], drawn, steps(RUN))


def test_the_largest_region_is_measured() -> None:
    """As a share of the plane: a plane of one region alone comes from a disturbed calibration."""
    found = by_hand()
    assert 1 / 3 < found.largest() < 0.6

    alone = np.stack([np.ones_like(found.rates), *np.zeros((2, *found.rates.shape))])
    assert dataclasses.replace(found, shares=alone).largest() == 1.0


def test_triple_point_by_hand() -> None:
    """Where three planes meet is the one triple point; bounds are the largest share."""
    found = by_hand()

    assert found.bounds()[0, -1] == regimes.BOUNDS.index("compute")
    assert found.bounds()[0, 0] == regimes.BOUNDS.index("memory")
    assert found.bounds()[-1, 20] == regimes.BOUNDS.index("dispatch")
    assert found.triple_points() == [pytest.approx((5, 5), abs=0.3)]


def test_boundaries_by_hand() -> None:
    """Compute and memory meet on x = 5 below the triple point, and only there."""
    straight = [
        point
        for line in by_hand().boundaries()
        for point in line
        if abs(point[0] - 5) < 1e-6 and point[1] < 4.5
    ]
    assert len(straight) > 10
    for line in by_hand().boundaries():
        for x, y in line:
            on_vertical = abs(x - 5) < 1e-6 and y <= 5.5
            on_slope = abs(0.02 * abs(x - 5) - 0.03 * (y - 5)) < 1e-6
            assert on_vertical or on_slope, (x, y)


def test_contours_by_hand() -> None:
    """Speed doubles with x: 100 tokens/s is one straight line from edge to edge."""
    levels = dict(by_hand().contours())

    assert set(levels) >= {10.0, 20.0, 50.0, 100.0, 1000.0}
    (line,) = levels[100.0]
    assert [x for x, _ in line] == pytest.approx([np.log2(50)] * len(line), abs=0.01)
    assert sorted((line[0][1], line[-1][1])) == [0.0, 10.0]


def test_diagram_of_a_model() -> None:
    """The grid's values are the expectation's; what does not fit the context is left out."""
    drawn = picture().diagram

    assert not drawn.inside[-1, -1]
    assert set(np.unique(drawn.bounds())) == {-1, 0, 1, 2}
    assert drawn.triple_points()
    assert (drawn.rates[drawn.inside] > 0).all()


def test_a_run_has_its_transitions_numbered() -> None:
    """A change of regime begins a new number; a phase in the same one has none."""
    found = steps(RUN)

    assert [step.number for step in found] == [0, 1, 2, 0]
    assert [step.observed for step in found] == ["compute", "memory", "dispatch", "dispatch"]
    assert found[0].rate == 180


def test_svg() -> None:
    """Well-formed, with nothing from outside, foreign text escaped, and every mark on it."""
    text = regime_picture.svg(picture())
    root = ET.fromstring(text)

    texts = ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]
    assert "A <model> & its\\x1b regimes" in texts
    assert {"compute", "memory", "dispatch", "triple point", "1", "2"} <= set(texts)
    titles = [node.text or "" for node in root.iter(f"{SVG}title")]
    assert any("20 tokens at context 90, 40 tok/s, memory" in title for title in titles)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert not list(root.iter(f"{SVG}script"))
    assert not list(root.iter(f"{SVG}image"))
    numbers = [float(c.attrib["cx"]) for c in root.iter(f"{SVG}circle")]
    assert all(0 <= x <= regime_picture.WIDTH for x in numbers)
    assert len(text) < 150_000


def test_page() -> None:
    """The page has the picture, the values, and a policy that allows its own script alone."""
    text = regime_page.regimes_page(picture())

    assert "default-src 'none'" in text
    assert text.count("<script") == 2
    assert "</svg>" in text
    assert "A &lt;model&gt; &amp; its\\x1b regimes" in text


@pytest.mark.slow
def test_the_page_in_a_browser(browser: Chromium, tmp_path: Path) -> None:
    """It fits phone and desk with the diagram that suits each, and says what is under a pointer."""
    path = tmp_path / "regimes.html"
    path.write_text(regime_page.regimes_page(picture()), encoding="utf-8")
    browser.fits(path)

    browser.open(path, width=390)
    shown = "[...document.querySelectorAll('svg')].map((n) => getComputedStyle(n).display)"
    assert browser.value(shown) == ["none", "block"]
    at = {"type": "mouseMoved", "x": 200, "y": 250}
    browser.call("Input.dispatchMouseEvent", **at)
    browser.wait(lambda: not browser.value("document.querySelector('#tip').hidden"))
    assert "tok/s, compute" in browser.value("document.querySelector('#tip').innerText")
    assert browser.complaints == []


def test_blocks() -> None:
    """In a terminal: one letter a cell, the triple point and the numbers of transitions."""
    lines = blocks(picture(), 80)
    text = "\n".join("".join(cell for cell, _ in line) for line in lines)

    assert all(len("".join(cell for cell, _ in line)) <= 80 for line in lines)
    assert set("cmd*12") <= set(text)
    assert "4k" in lines[-1][0][0]


def test_a_longer_run_stays_on_the_plot() -> None:
    """One with a longer context than the diagram has goes along its edge, in SVG and in blocks."""
    short = picture()
    path = steps(Trace([*RUN.events, phase("prefill", 9000, 8000, "compute"),
                        phase("decode", 10, 17_000, "memory")]))  # fmt: skip
    both = dataclasses.replace(short, path=path)

    root = ET.fromstring(regime_picture.svg(both))

    ends = [float(node.attrib[name]) for node in root.iter(f"{SVG}line") for name in ("x1", "x2")]
    circles = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter(f"{SVG}circle")]
    assert max(ends) <= regime_picture.RIGHT
    assert max(x for x, _ in circles) == regime_picture.RIGHT
    assert min(y for _, y in circles) == regime_picture.TOP
    lines = blocks(both, 80)
    assert lines[0][-1][0] == "3"
    assert lines[-2][-1][0] == "4"


@pytest.mark.parametrize("width", [1, 8, 9, 10])
def test_a_terminal_of_few_columns(width: int) -> None:
    """It gets two cells a row, more than it has room for."""
    assert all(len(line) == 3 for line in blocks(picture(), width)[:-1])


def test_the_least_context_has_a_diagram() -> None:
    """The one that the command line asks for."""
    cost = picture().cost or MODEL
    found = Calibration("tiny", Efficiency(barrier_s=2e-6), PASSES, MACHINE, "")

    least = Picture("", [], diagram(cost, found, _LEAST_CONTEXT))

    assert regime_picture.svg(least).startswith("<svg")
    assert blocks(least, 80)


@pytest.mark.slow
def test_the_memory_region_shrinks_with_the_batch() -> None:
    """More sequences read the weights once: fewer sizes are bound by memory; the SVG says where."""
    reached = Efficiency(barrier_s=2e-7, row_s=2e-8, decode_rows_s=2e-7)
    found = Calibration("m", reached, PASSES, MACHINE, "")
    batches = [diagram(MODEL, found, 4096, batch) for batch in (1, 4, 16)]

    regions = [d.region("memory") for d in batches]
    assert regions[0] > regions[1] > regions[2]
    for d in batches:
        assert sum(d.region(bound) for bound in regimes.BOUNDS) == pytest.approx(1.0)
    assert batches[0].rates[0, 0] < batches[1].rates[0, 0], "together they are faster"

    whole = Picture("title", [], batches[0], batches=batches[1:])
    drawn = ET.fromstring(regime_picture.svg(whole))
    assert len(drawn.findall(f".//{SVG}path[@class='batch line memory dashed']")) == 2
    texts = ["".join(text.itertext()) for text in drawn.iter(f"{SVG}text")]
    assert {"B = 4", "B = 16"} <= set(texts)


def test_maps_side_by_side() -> None:
    """One document: a plot for each, of which none names a part of another's; axes once."""
    one = dataclasses.replace(picture(), path=())
    text = regime_picture.side_by_side("a <machine>", ["dense", "sparse & more"], [one, one])
    document = ET.fromstring(text)

    names = [clip.get("id") for clip in document.iter(f"{SVG}clipPath")]
    assert len(set(names)) == len(names) == 2
    words = [node.text for node in document.iter(f"{SVG}text")]
    assert words.count("new tokens") == 1
    assert {"a <machine>", "dense", "sparse & more"} <= set(words)
    _, _, width, height = map(float, str(document.get("viewBox")).split())
    for rect in document.iter(f"{SVG}rect"):
        assert float(rect.get("x", 0)) + float(str(rect.get("width"))) <= width
        assert float(rect.get("y", 0)) + float(str(rect.get("height"))) <= height


def test_what_shapes_a_map() -> None:
    """Layers without keys and values, windows, states and experts are told, and only where."""
    assert facts(MODEL)[0].endswith(f"{MODEL.layers} of {MODEL.layers} layers attend")
    assert kind_of(MODEL) == "dense"
    mixed = dataclasses.replace(
        MODEL,
        attention=(AttentionLayers(1, 64, 256.0, 0), AttentionLayers(1, 64, 256.0, 512)),
        windows=(512,),
        state_bytes=3 << 20,
        experts=8,
        experts_used=2,
        expert_bytes=800,
    )
    told = facts(mixed)
    assert kind_of(mixed) == "hybrid and sparse"
    assert told[0].endswith(f"2 of {MODEL.layers} layers attend, 1 with a window of 512")
    assert told[1] == "3 MiB of state a sequence, whatever its length"
    assert told[2] == "2 of 8 experts a token; 1, 8, 64 rows read 2, 7, 8"
    assert experts_touched(mixed, 2) == pytest.approx(8 * (1 - 0.75**2))
