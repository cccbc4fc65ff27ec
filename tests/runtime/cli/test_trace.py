"""``triplepoint trace``: its commands on real traces, without the engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from triplepoint.runtime.replay import examples
from triplepoint.traces import Trace
from triplepoint.traces.events import (
    AnyEvent,
    LayerRecord,
    MessageEvent,
    ModelRecord,
    PhaseEvent,
    RunEnd,
    RunStart,
    ToolEvent,
    TurnEnd,
)

HOSTILE = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b31m\u202e\r\nx"
COMMANDS = (
    ["ls", "{folder}"],
    ["show", "{trace}"],
    ["show", "{trace}", "--layers"],
    ["show", "{trace}", "--events"],
    ["diff", "{trace}", "{trace}"],
    ["export", "{trace}", "--format", "perfetto"],
    ["export", "{trace}", "--format", "otlp-json", "--include-content"],
    ["export", "{trace}", "--format", "csv", "--table", "tools"],
    ["view", "{trace}", "-o", "{page}"],
)
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Cli = Callable[..., tuple[int, str, str]]


def events(text: str = "disk full") -> list[AnyEvent]:
    """A run with a call and a profile, whose texts are as given."""
    common: dict[str, Any] = {"predicted": "compute", "wall_s": 0.01, "turn": 1, "step": 1}
    return [
        RunStart(task=text, model=ModelRecord(name="nano"), target="avx2", threads=2),
        MessageEvent(role="user", content=text, turn=1, step=1),
        PhaseEvent(
            phase="prefill",
            observed="dispatch",
            tokens=60,
            kv_before=0,
            kv_after=60,
            layers=[LayerRecord(layer=n, wall_s=0.002, ffn_s=0.002) for n in (None, 0)],
            **common,
        ),
        MessageEvent(role="assistant", content=text, turn=1, step=1),
        PhaseEvent(
            phase="decode",
            purpose="tool_call",
            observed="memory",
            tokens=4,
            kv_before=60,
            kv_after=63,
            token_ids=[1, 2, 3, 4],
            ttft_s=0.02,
            **common,
        ),
        ToolEvent(name="read_file", arguments={"path": text}, result=text, turn=1, step=1),
        TurnEnd(turn=1, answer=text),
        RunEnd(status="answered", answer=text, message=text),
    ]


def write(path: Path, text: str = "disk full", **options: Any) -> Path:
    """A trace file of that run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Trace.to_file(path, **options) as trace:
        for event in events(text):
            trace.write(event)
    return path


@pytest.fixture
def cli(in_folder: Callable[[str], Cli]) -> Cli:
    """Run ``triplepoint trace ARGS`` in an empty folder; gives status, stdout and stderr."""
    return in_folder("trace")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The folder in the state folder, with two runs and a damaged one."""
    folder = tmp_path / "state" / "triplepoint" / "traces"
    write(folder / "20260101-000000-000-aaaaaa.jsonl", run="20260101-000000-000-aaaaaa")
    write(folder / "20260102-000000-000-bbbbbb.jsonl", run="20260102-000000-000-bbbbbb")
    (folder / "damaged.jsonl").write_text('{"v":2,"event":"phase"}\n')
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_needs_the_engine(tmp_path: Path, command: list[str]) -> None:
    """In a process of its own, neither numpy nor llvmlite nor code of kernels is loaded."""
    trace = write(tmp_path / "traces" / "t.jsonl")
    places = {"trace": trace, "folder": trace.parent, "page": tmp_path / "t.html"}
    words = [word.format(**places) for word in command]
    code = (
        "import sys; from triplepoint.runtime.cli import main; status = main(sys.argv[1:]); "
        "bad = [m for m in sys.modules if m.split('.')[0] in ('numpy', 'llvmlite', 'tokenizers') "
        "or m.startswith('triplepoint.jit.') and m != 'triplepoint.jit.kv_formats']; "
        "assert not bad, bad[:5]; sys.exit(status)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, "trace", *words], capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_hostile_reaches_the_terminal(cli: Cli, tmp_path: Path, command: list[str]) -> None:
    """Whatever a trace holds, no command writes a control character but the newline."""
    trace = write(tmp_path / "traces" / "t.jsonl", HOSTILE)
    places = {"trace": trace, "folder": trace.parent, "page": tmp_path / "t.html"}

    status, out, err = cli(*[word.format(**places) for word in command])

    assert status == 0
    written = out + err + (places["page"].read_text() if command[0] == "view" else "")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", written)


def test_ls(cli: Cli, kept: Path) -> None:
    """The newest first; a damaged one is listed with its fault; -n shortens."""
    status, out, _ = cli("ls")

    assert status == 0
    heading, damaged, second, first = out.splitlines()
    assert heading.startswith("run ")
    assert damaged.startswith("damaged")
    assert "unreadable" in damaged
    assert second.startswith("20260102")
    assert "disk full" in first
    assert "and 2 older ones" in cli("ls", "--limit", 1)[1]
    listed = json.loads(cli("ls", "--json")[1])
    assert [len(trace.get("runs", [])) for trace in listed["traces"]] == [0, 1, 1]
    assert cli("ls", kept / "nothing")[0] == 3


def test_traces_by_name(cli: Cli, kept: Path) -> None:
    """A file, a run's name or its beginning, or the last one; anything else is told."""
    (kept / "damaged.jsonl").unlink()
    for name in (kept / "20260102-000000-000-bbbbbb.jsonl", "20260102", "last"):
        status, out, _ = cli("show", name)
        assert status == 0
        assert "run 20260102-000000-000-bbbbbb, nano" in out
    status, _, err = cli("show", "2026")
    assert status == 3
    assert "2 traces" in err
    assert "neither a file nor a run" in cli("show", "nope")[2]
    assert "does not exist" in cli("show", "nope.jsonl")[2]


def test_show(cli: Cli, tmp_path: Path) -> None:
    """Timeline, turns and regimes; layers and raw events if asked for."""
    trace = write(tmp_path / "t.jsonl")

    _, out, _ = cli("show", trace)
    assert "dispatch-bound prefill" in out
    assert re.search(r"^1 +disk full +1 +20 ms", out, re.MULTILINE)
    assert re.search(r"^memory-bound decode +1 +4 .* 0 of 1$", out, re.MULTILINE)
    assert "layer " not in out
    _, out, _ = cli("show", trace, "--layers")
    assert re.search(r"^outside +2 ms +20%", out, re.MULTILINE)
    assert re.search(r"^between passes +6 ms +60%", out, re.MULTILINE)
    _, out, _ = cli("show", trace, "--events")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == list(range(8))
    shown = json.loads(cli("show", trace, "--json", "--layers")[1])
    assert [len(layers) for layers in shown["layers"]] == [2, 0]


def test_a_redacted_trace_says_so(cli: Cli, tmp_path: Path) -> None:
    """show, and the page, tell why there are no texts."""
    trace = write(tmp_path / "t.jsonl", redact=True)

    assert "redacted: this run was recorded without its text" in cli("show", trace)[1]
    cli("view", trace, "-o", "page.html")
    assert '"redacted":true' in (tmp_path / "page.html").read_text()
    assert "disk full" not in (tmp_path / "page.html").read_text()


def test_view_of_several_traces(cli: Cli, tmp_path: Path) -> None:
    """They are on one page, so that agents that ran at once can be seen beside each other."""
    write(tmp_path / "a.jsonl")
    write(tmp_path / "b.jsonl")

    assert cli("view", "a.jsonl", "b.jsonl", "-o", "page.html")[0] == 0
    assert (tmp_path / "page.html").read_text().count('"turns":[') == 2


def test_diff(cli: Cli, tmp_path: Path) -> None:
    """0 where the tokens are the same; 1 where one differs, with its place."""
    first, second = write(tmp_path / "a.jsonl"), tmp_path / "b.jsonl"
    second.write_text(first.read_text().replace("[1,2,3,4]", "[1,2,9,4]"))

    assert cli("diff", first, first)[0] == 0
    status, out, _ = cli("diff", first, second)
    assert status == 1
    assert "first difference in phase 2 (tool call of step 1.1) at token 3: 3 → 9" in out
    found = json.loads(cli("diff", first, second, "--json")[1])
    assert found["first_difference"] == {"phase": 1, "position": 2, "first": 3, "second": 9}


def test_export(cli: Cli, tmp_path: Path) -> None:
    """To a file or to standard output; a folder gives all its traces."""
    trace = write(tmp_path / "traces" / "a.jsonl")
    write(tmp_path / "traces" / "b.jsonl", run="other")

    status, out, _ = cli("export", trace, "--format", "perfetto")
    assert status == 0
    assert json.loads(out)["traceEvents"]
    cli("export", trace.parent, "--format", "otlp-json", "-o", "spans.json")
    assert len(json.loads((tmp_path / "spans.json").read_text())["resourceSpans"]) == 2
    _, out, _ = cli("export", trace.parent, "--format", "csv", "--table", "runs")
    assert len(out.splitlines()) == 3
    status, _, said = cli("export", trace, "--format", "parquet")
    assert (status, "give a file with -o" in said) == (2, True)


def test_query(cli: Cli, tmp_path: Path) -> None:
    """SQL over a folder, as a table or as JSON; a wrong query is told."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    folder = write(tmp_path / "traces" / "a.jsonl").parent
    sql = "SELECT regime, avg(tokens_per_s) AS speed FROM phases GROUP BY regime ORDER BY regime"

    status, out, _ = cli("query", sql, folder)
    assert status == 0
    assert out.split() == (
        ["regime", "speed", "dispatch-bound", "prefill", "6000", "memory-bound", "decode", "400"]
    )
    found = json.loads(cli("query", sql, folder, "--json")[1])
    assert found["columns"] == ["regime", "speed"]
    status, _, err = cli("query", "SELECT", folder)
    assert status == 3
    assert "the query failed" in err


def test_a_page_in_a_folder_that_is_not_there(triplepoint: Run, recorded: Path) -> None:
    """What cannot be written is said, and why; a folder's name is none for a page."""
    for target, why in (("no/page.html", "there is no folder "), (".", "it is a folder")):
        done = triplepoint("trace", "view", recorded, "-o", target)
        assert done.returncode == 3
        assert done.stderr.startswith(f"triplepoint: error: cannot write {target}: {why}")


def test_an_empty_name_is_no_trace(triplepoint: Run) -> None:
    """A shell's variable that was never set is not the current folder."""
    for args in (["trace", "show", ""], ["replay", ""], ["trace", "rm", "", "--yes"]):
        done = triplepoint(*args)
        assert done.returncode == 3
        assert "the name of a trace is empty" in done.stderr


def test_the_library_is_named_only_where_it_helps(
    cli: Cli, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the trace was found and cannot be read; an installed package has none."""
    monkeypatch.setattr(examples, "names", lambda: ["mine"])
    assert "the library has mine" in cli("show", "nonesuch")[2]
    status, _, err = cli("show", "damaged")
    assert status == 3
    assert str(kept / "damaged.jsonl") in err
    assert "the library has" not in err


def test_an_empty_trace_is_told(
    triplepoint: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Instead of nothing."""
    (tmp_path / "empty.jsonl").touch()
    for command in (["trace", "show"], ["replay"]):
        assert triplepoint(*command, "empty.jsonl").stdout == "empty.jsonl: the trace is empty\n"


def test_view_names_its_page(cli: Cli, tmp_path: Path) -> None:
    """Without -o the page has the trace's name, in the folder where one is."""
    write(tmp_path / "traces" / "run.jsonl")

    status, out, _ = cli("view", "traces/run.jsonl")

    assert (status, out.strip()) == (0, "run.html")
    assert (tmp_path / "run.html").read_text().startswith("<!doctype html>")
    (tmp_path / "traces" / "more").mkdir()
    assert cli("view", "traces/more/..")[1].strip() == "traces.html"


def test_what_is_shown_is_drawn(
    triplepoint: Callable[..., subprocess.CompletedProcess[str]], recorded: Path, tmp_path: Path
) -> None:
    """--svg writes the timeline as a picture in colors that loads nothing from elsewhere."""
    target = tmp_path / "shown.svg"

    done = triplepoint("trace", "show", recorded, "--svg", target)

    assert (done.returncode, done.stderr) == (0, "")
    svg = target.read_text(encoding="utf-8")
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = " ".join("".join(root.itertext()).split())
    assert "streaming\xa0prefill" in "".join(root.itertext()) or "streaming prefill" in texts
    assert "@font-face" not in svg
    assert "url(http" not in svg
    assert "\x1b" not in svg
