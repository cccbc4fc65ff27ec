"""Render docs/fleet.svg: a map on a cluster whose workers, driver and one node are killed.

TRIPLEPOINT_FLEET_TIMELINE=fleet.json TRIPLEPOINT_FLEET_ROWS=400 pytest -n0 -m slow -k once \\
    tests/runtime/fleet/test_ray_cluster.py
python -m labs.recording.render_fleet fleet.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from triplepoint.traces.charts import Lines, Series, side_by_side

DOCS = Path(__file__).parents[2] / "docs"
WORDS = {"driver": "driver killed and restarted", "node": "node lost"}


def main(timeline: str) -> None:
    found = json.loads(Path(timeline).read_text())
    rows, events = sorted(found["rows"]), found["events"]

    def done(at: float) -> int:
        return sum(row <= at for row in rows)

    killed = [(at, done(at)) for at, what in events if what == "worker"]
    series = [
        Series("rows answered", [(row, n + 1) for n, row in enumerate(rows)], "steps"),
        Series("a worker killed", killed, "dots"),
    ]
    marks = [(at, done(at), WORDS[what]) for at, what in events if what in WORDS]
    note = f"{len(rows)} rows, three nodes as processes on one machine; each answered once"
    chart = Lines(
        "Rows answered while processes are killed",
        "seconds",
        "rows",
        series,
        notes=[note],
        marks=marks,
    )
    (DOCS / "fleet.svg").write_text(side_by_side(chart, width=900))


if __name__ == "__main__":
    main(sys.argv[1])
