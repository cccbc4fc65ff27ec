"""`triplepoint run` and `replay --verify`, with the embedded model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.traces import Trace

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Terminal = Callable[..., tuple[int, str]]

EXAMPLE = Path(__file__).parents[3] / "examples" / "incident"  # pip does not install it
QUESTION = "Which files are here?"


@pytest.fixture
def run_trace(triplepoint: Run, nano: Path, folder: Path, tmp_path: Path) -> Path:
    """The trace of a run that called a tool."""
    path = tmp_path / "trace.jsonl"
    done = triplepoint("run", QUESTION, "--dir", folder, "--trace", path, "-q")
    assert done.returncode == 0, done.stderr
    return path


def test_the_answer_alone_is_on_stdout(
    triplepoint: Run, nano: Path, folder: Path, env: dict
) -> None:
    """The call, the size of its result and a line of statistics with the trace go to stderr."""
    done = triplepoint("run", QUESTION, "--dir", folder)

    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    (answer,) = done.stdout.splitlines()
    assert "app.log" in answer
    assert "notes.txt" in answer
    call, result, statistics = done.stderr.splitlines()
    assert call == "> list_dir()"
    assert result == "  result of 2 lines, 17 characters: app.log"
    parts = statistics.split(" · ")
    assert re.fullmatch(r"[\d.]+ (µs|ms|s)", parts[0])
    assert re.fullmatch(r"reused [\d,]+ of [\d,]+ tokens, \d+ generated", parts[1])
    assert " decode" in parts[-2]
    name = parts[-1].removeprefix("trace ")
    assert "/" not in name
    assert triplepoint("trace", "show", name).returncode == 0
    trace = Trace.load(Path(env["XDG_STATE_HOME"]) / "triplepoint" / "traces" / f"{name}.jsonl")
    assert trace.answer == answer
    assert trace.end is not None
    assert trace.end.status == "answered"
    assert trace.header is not None
    assert trace.header.machine.cpu
    assert trace.header.machine.profile["read_gbps"]


def test_what_is_not_there_has_a_status_of_its_own(
    triplepoint: Run, nano: Path, folder: Path
) -> None:
    """For scripts: 5, and `found` in the JSON, which has fields for sources, too."""
    done = triplepoint("run", "What does missing.log say?", "--dir", folder, "--json")
    assert (done.returncode, json.loads(done.stdout)["found"]) == (5, False)
    done = triplepoint("run", QUESTION, "--dir", folder, "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["found"], said["sources"], said["unsupported"]) == (
        0,
        True,
        [],
        [],
    )


def test_verbose_is_the_table(triplepoint: Run, nano: Path, folder: Path, env: dict) -> None:
    """-v has the table of phases and the trace's path in place of the line, on stderr too."""
    done = triplepoint("run", QUESTION, "--dir", folder, "-v")

    assert len(done.stdout.splitlines()) == 1
    lines = done.stderr.splitlines()
    assert lines[2] == ""
    assert "regime" in lines[3]
    table = [line.split("  ")[0] for line in lines[4:9]]
    assert [name for name in table if name] == ["prompt", "tool call", "tool result", "answer"]
    path = Path(lines[-1].removeprefix("trace: "))
    assert path.parent == Path(env["XDG_STATE_HOME"]) / "triplepoint" / "traces"


@pytest.mark.slow
def test_on_a_terminal_the_answer_is_the_same(
    on_terminal: Terminal, nano: Path, folder: Path
) -> None:
    """Colors aside, a terminal shows what a pipe gets."""
    status, shown = on_terminal("run", QUESTION, "--dir", folder)

    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert status == 0
    assert "\x1b[" in shown
    assert "\x1b" not in plain
    assert plain.splitlines()[0] == "> list_dir()"


def test_json_is_one_object(triplepoint: Run, nano: Path, folder: Path) -> None:
    """--json prints the answer, phases and tools as one object and nothing else."""
    found = json.loads(triplepoint("run", QUESTION, "--dir", folder, "--json").stdout)

    assert found["status"] == "answered"
    assert "notes.txt" in found["answer"]
    assert [phase["purpose"] for phase in found["phases"]] == [
        "prompt",
        "tool_call",
        "tool_result",
        "answer",
    ]
    assert all({"regime", "predicted_regime", "limit_share"} <= p.keys() for p in found["phases"])
    assert found["tools"][0]["name"] == "list_dir"
    assert Path(found["trace"]).exists()


def test_quiet_is_the_answer_alone(triplepoint: Run, nano: Path, folder: Path) -> None:
    """-q is for scripts: nothing beside the answer. The question may come from stdin."""
    done = triplepoint("run", "-", "--dir", folder, "-q", stdin=QUESTION)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert "app.log" in done.stdout


@pytest.mark.slow
def test_a_question_from_a_pipe(triplepoint: Run, nano: Path, folder: Path) -> None:
    """The newline that `echo` adds is no part of it: the same tokens as on the command line."""
    tokens = []
    for name, question, stdin in (("a", QUESTION, ""), ("b", "-", f"{QUESTION}\n")):
        trace = folder.parent / f"{name}.jsonl"
        triplepoint("run", question, "--dir", folder, "--trace", trace, stdin=stdin)
        tokens.append([phase.token_ids for phase in Trace.load(trace).phases])

    assert tokens[0] == tokens[1]


@pytest.mark.slow
def test_traces_sort_by_time(triplepoint: Run, nano: Path, folder: Path, env: dict) -> None:
    """Each run gets a file of its own, named so that names are in the order of the runs."""
    for question in ("Hello!", QUESTION):
        assert triplepoint("run", question, "--dir", folder).returncode == 0

    traces = Path(env["XDG_STATE_HOME"]) / "triplepoint" / "traces"
    tasks = [Trace.load(path).header for path in sorted(traces.iterdir())]
    assert [task and task.task for task in tasks] == ["Hello!", QUESTION]


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["-m", "none.gguf"], 3, "no such model: none.gguf"),
        (["--dir", "nowhere"], 3, "nowhere"),
        (["--target", "avx9"], 2, "unknown CPU target 'avx9'"),
        (["--trace", "files/app.log"], 3, "app.log exists and is not a trace"),
        (["--max-steps", "1"], 4, "Allow more (--max-steps)"),
        (["--max-tokens", "5"], 4, "cut after 5 generated tokens; allow more (--max-tokens)"),
        (["--context", "64"], 4, "the context holds 64 tokens"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_status(
    triplepoint: Run, nano: Path, folder: Path, args: list[str], status: int, message: str
) -> None:
    """Each failure is one line, the last on stderr, with the status that its kind has."""
    done = triplepoint("run", QUESTION, "--dir", folder, *args)

    assert done.returncode == status
    error = done.stderr.splitlines()[-1]
    assert error.startswith("triplepoint: error: ")
    assert message in error
    assert done.stderr.count("error: ") == 1
    assert (folder / "app.log").read_text().startswith("INFO start\n")


def test_a_damaged_model_is_named(triplepoint: Run, nano: Path, tmp_path: Path) -> None:
    """A model file that was cut is an error about that file, not a crash."""
    (tmp_path / "cut.gguf").write_bytes(nano.read_bytes()[:5000])

    done = triplepoint("run", "Hello!", "-m", "cut.gguf")

    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def long_model(nano: Path, path: Path) -> Path:
    """The embedded model with a context of 32,768: long enough for a prefill of seconds."""
    data = bytearray(nano.read_bytes())
    key = b"qwen3.context_length"
    at = data.index(key) + len(key) + 4  # after the type of the value
    data[at : at + 4] = (32768).to_bytes(4, "little")
    path.write_bytes(data)
    return path


def test_ctrl_c_ends_a_run(nano: Path, folder: Path, tmp_path: Path, env: dict) -> None:
    """SIGINT in a long prefill: status 130, and the trace says that the run was cancelled."""
    model = long_model(nano, tmp_path / "long.gguf")
    trace = tmp_path / "trace.jsonl"
    question = "error in the log file " * 3000
    process = subprocess.Popen(
        [sys.executable, "-m", "triplepoint", "run", "-", "-m", model, "--trace", trace],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=folder,
    )
    assert process.stdin is not None
    process.stdin.write(question)
    process.stdin.close()
    process.stdin = None
    while process.poll() is None and not (trace.exists() and trace.stat().st_size):
        time.sleep(0.01)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)

    print(f"ended {time.monotonic() - sent:.2f} s after SIGINT")
    assert (process.returncode, stdout) == (130, "")
    statistics, error = stderr.splitlines()
    assert statistics.endswith(f" · trace {trace}")
    assert error == "triplepoint: interrupted"
    found = Trace.load(trace)
    assert found.torn is None
    assert found.end is not None
    assert found.end.status == "cancelled"


@pytest.mark.slow
def test_a_long_prefill_shows_its_progress(
    on_terminal: Terminal, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """On a terminal a prefill of seconds shows tok/s and time left, and takes the line away."""
    model = long_model(nano, tmp_path / "long.gguf")
    question = "error in the log file " * 1100
    trace = tmp_path / "trace.jsonl"
    args = ["--dir", folder, "-m", model, "--max-tokens", 5, "--trace", trace]

    status, shown = on_terminal("run", question, *args)

    assert status in (0, 4)
    if Trace.load(trace).phases[0].wall_s < 2:
        pytest.skip("this machine reads 11,000 tokens in less than two seconds")
    drawn = re.findall(r"\rreading [\d,]+ of 11,\d\d\d tokens, [\d,.]+ tok/s, .*? left", shown)
    assert drawn
    assert re.search(r"left *\r +\r", shown)


@pytest.mark.slow
def test_verify_says_phase_by_phase(triplepoint: Run, run_trace: Path) -> None:
    """The model gives the same tokens again, and each phase is named."""
    done = triplepoint("replay", run_trace, "--verify")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("run 20")
    assert [line.split()[:2] for line in lines[1:5]] == [["phase", str(n)] for n in range(1, 5)]
    assert lines[2].endswith("sampled, the same")
    assert lines[-1].startswith("verified: 4 phases, ")


@pytest.mark.slow
def test_verify_names_the_first_token_that_differs(triplepoint: Run, run_trace: Path) -> None:
    """A token that the model does not give is found, and the status is 1."""
    lines = run_trace.read_text().splitlines()
    events = [json.loads(line) for line in lines]
    answer = next(i for i, event in enumerate(events) if event.get("purpose") == "answer")
    events[answer]["token_ids"][3] += 1
    run_trace.write_text("\n".join(map(json.dumps, events)) + "\n")

    done = triplepoint("replay", run_trace, "--verify")
    as_json = json.loads(triplepoint("replay", run_trace, "--verify", "--json").stdout)

    assert done.returncode == 1
    assert "phase 4   answer       differs at token 4 of " in done.stdout
    assert (
        "\nnot verified: phase 4 gave a different token (4 of 4 phases were run)\n" in done.stdout
    )
    assert as_json["ok"] is False
    assert [phase["same"] for phase in as_json["runs"][0]["phases"]] == [True, True, True, False]
    assert as_json["runs"][0]["phases"][3]["difference"]["position"] == 3


@pytest.mark.slow
def test_verify_names_the_setting_that_differs(
    triplepoint: Run, run_trace: Path, nano: Path, tmp_path: Path
) -> None:
    """Another model file is refused by its hash; another KV format or thread count is noted."""
    other = long_model(nano, tmp_path / "other.gguf")
    refused = triplepoint("replay", run_trace, "--verify", "-m", other)
    noted = triplepoint("replay", run_trace, "--verify", "--kv", "f32", "-t", "1")

    assert refused.returncode == 3
    assert "model.sha256 differs" in refused.stderr
    assert "note: KV cache format differs: recorded bf16, now f32" in noted.stdout
    assert noted.returncode in (0, 1)
    if os.cpu_count() != 1:
        assert "note: threads differs: recorded" in noted.stdout


@pytest.mark.slow
def test_verify_does_with_the_machine_it_has(triplepoint: Run, run_trace: Path) -> None:
    """Threads and a target that this machine lacks are replaced, and that is noted."""
    events = [json.loads(line) for line in run_trace.read_text().splitlines()]
    events[0] |= {"target": "avx10-fast", "threads": 200}
    run_trace.write_text("\n".join(map(json.dumps, events)) + "\n")

    done = triplepoint("replay", run_trace, "--verify")

    assert done.returncode == 0, done.stderr
    assert "note: unknown CPU target 'avx10-fast'" in done.stdout
    assert "note: threads differs: recorded 200, now " in done.stdout


def test_a_limited_run_replays_what_there_was(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """The part of an answer that a limit cut off is shown with the reason."""
    args = ["--dir", folder, "--trace", tmp_path / "trace.jsonl", "--max-tokens", 5]
    assert triplepoint("run", "Hello!", *args).returncode == 4

    lines = triplepoint("replay", tmp_path / "trace.jsonl").stdout.splitlines()

    assert lines[1] == "? Hello!"
    assert lines[2]
    assert lines[3].startswith("limit: the answer was cut after 5 generated tokens")


@pytest.mark.slow
def test_verify_follows_a_chat(triplepoint: Run, nano: Path, folder: Path, tmp_path: Path) -> None:
    """Several turns in one session verify as one sequence of phases."""
    trace = tmp_path / "trace.jsonl"
    asked = f"{QUESTION}\nWhat is on line 2 of notes.txt?\n"
    chat = triplepoint("chat", "--dir", folder, "--trace", trace, stdin=asked)
    assert chat.returncode == 0, chat.stderr

    done = triplepoint("replay", trace, "--verify")

    assert done.returncode == 0, done.stdout
    assert len(Trace.load(trace).turns) == 2
    assert done.stdout.splitlines()[-1].startswith("verified: 8 phases")


def test_an_answer_by_schema(triplepoint: Run, nano: Path, tmp_path: Path) -> None:
    """The answer is JSON of the schema and nothing else; what is no schema is refused."""
    schema = {
        "type": "object",
        "properties": {"word": {"type": "string", "maxLength": 8}, "yes": {"type": "boolean"}},
        "required": ["word", "yes"],
    }
    (tmp_path / "s.json").write_text(json.dumps(schema))
    (tmp_path / "bad.json").write_text("[1]")

    # Of its own, nano never writes JSON: it would rather call again.
    with open_gguf(nano) as file:
        (call,) = Tokenizer.from_gguf(file).encode("<tool_call>", special=True)
    asked, bias = "Which files are here?", f"logit_bias={call}:-100"
    done = triplepoint(
        "run", asked, "--dir", EXAMPLE, "--schema", "s.json", "-q", "--sampling", bias
    )
    refused = triplepoint("run", asked, "--dir", EXAMPLE, "--schema", "bad.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    deep = triplepoint("run", asked, "--dir", EXAMPLE, "--schema", "deep.json")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert set(answer) == {"word", "yes"}
    assert refused.returncode == 3
    assert deep.returncode == 3
    assert "error: the schema deep.json is not JSON" in deep.stderr
    assert "bad.json is not a JSON object" in refused.stderr


def test_live_names_each_change_of_regime(triplepoint: Run, nano: Path, folder: Path) -> None:
    """One line for each phase, in order, as in the table; what changes the regime is numbered."""
    done = triplepoint("run", QUESTION, "--dir", folder, "--show-phases", "-v")
    lines = done.stderr.replace(" (contended)", "").splitlines()  # however busy this machine is
    table = next(n for n, line in enumerate(lines) if line.startswith("phase  "))
    shown = [line for line in lines[:table] if re.match(r"  \S+ (prefill|decode): |→ \d+: ", line)]
    regimes = [re.findall(r"\S+ (?:prefill|decode)", line) for line in shown]
    rows = [re.findall(r"\S+ (?:prefill|decode)", line) for line in lines[table + 1 :]]
    in_table = [row[0] for row in rows if len(row) == 1][: len(shown)]

    assert len(shown) >= 4
    assert [found[-1] for found in regimes] == in_table
    changes = [n for n in range(1, len(shown)) if in_table[n] != in_table[n - 1]]
    numbered = [n for n, line in enumerate(shown) if line.startswith("→ ")]
    assert numbered == changes
    for count, n in enumerate(numbered, 1):
        assert shown[n].startswith(f"→ {count}: {in_table[n - 1]} → {in_table[n]}: ")
    assert all("tok/s" in line and "%" in line for line in shown)


def test_a_session_goes_on(triplepoint: Run, nano: Path, folder: Path) -> None:
    """`--session` keeps it, `--continue` goes on with it, a chat too; little is recomputed."""
    first = triplepoint("run", QUESTION, "--dir", folder, "--session", "logs", "-q")
    assert (first.returncode, first.stderr) == (0, "")
    trace = folder.parent / "second.jsonl"
    second = triplepoint("run", "Hello!", "--dir", folder, "--continue", "--trace", trace)
    assert second.returncode == 0
    assert second.stderr.startswith("session logs continues: ")
    taken, read = Trace.load(trace).phases[:2]
    assert taken.purpose == "session"
    assert read.cached_tokens == taken.cached_tokens > 100
    assert read.tokens < 40
    (listed,) = [
        x for x in triplepoint("trace", "ls", trace.parent).stdout.split("\n") if "Hel" in x
    ]
    assert listed.split("triplepoint-nano")[1].split()[0] == "1"  # turn, as far as this run goes
    chat = triplepoint("chat", "--dir", folder, "--session", "logs", stdin="/undo\n/undo\n")
    assert "removed: Hello!" in chat.stdout
    assert f"removed: {QUESTION}" in chat.stdout
    for arguments, says in (
        (("--session", "../logs"), "is not a session name"),
        (("--session", "logs", "--continue"), "not allowed with"),
    ):
        refused = triplepoint("run", "Hello!", "--dir", folder, *arguments)
        assert refused.returncode != 0
        assert says in refused.stderr


def test_nobody_reads_on(folder: Path, tmp_path: Path, env: dict) -> None:
    """As in `run … | head -0`: no traceback, and the trace is whole."""
    read, write = os.pipe()
    os.close(read)
    trace = tmp_path / "run.jsonl"
    question = "What is the error in app.log?"
    command = [sys.executable, "-m", "triplepoint", "run", question, "--dir", folder, "-q"]
    done = subprocess.run(
        [*command, "--trace", trace], stdout=write, stderr=subprocess.PIPE, env=env, timeout=60
    )
    os.close(write)

    assert done.stderr == b""
    assert done.returncode == 1
    end = Trace.load(trace).end
    assert end is not None
    assert end.status == "answered"
