"""The table of phases."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triplepoint.runtime.agent.result import Usage
from triplepoint.runtime.cli.conversation import turn_parts
from triplepoint.runtime.cli.live_display import regime_text
from triplepoint.traces import Trace, report, timeline
from triplepoint.traces.events import AnyEvent, PhaseEvent, ToolEvent
from triplepoint.traces.sanitize import printable, short


@pytest.fixture
def trace(run_events: list[AnyEvent]) -> Trace:
    """A run in memory."""
    trace = Trace()
    for event in run_events:
        trace.write(event)
    return trace


def test_the_whole_table(trace: Trace) -> None:
    """Phases and tools in order, a prediction where it was wrong, and the sums below."""
    assert timeline.plain(trace).splitlines() == [
        "phase        regime                  predicted  tokens   KV   time   tok/s  of limit",
        "prompt       dispatch-bound prefill  compute        60   60  10 ms   6,000  50% busy",
        "tool call    memory-bound decode                     4   63  10 ms   400.0    50% L2",
        '  read_file(path="app.log"): 17 characters                  400 µs',
        "tool result  streaming prefill                     300  364  10 ms  30,000  50% peak",
        "answer       memory-bound decode                     3  366  10 ms   300.0    50% L2",
        "regimes: dispatch-bound prefill → memory-bound decode → streaming prefill"
        " → memory-bound decode",
        "TTFT 12 ms, TPOT 2.86 ms, input 423 tokens (63 cached), output 7, 1 tool call 400 µs",
    ]


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ("abc", "a → b → c"),
        ("ababa", "(a → b) × 2 → a"),
        ("cabababd", "c → (a → b) × 3 → d"),
        ("abcabc", "(a → b → c) × 2"),
        ("a", "a"),
        ("", ""),
    ],
)
def test_what_repeats_is_counted(names: str, line: str) -> None:
    """Pairs that come again and again are one, with how often; all of them are there."""
    assert " → ".join(timeline._counted(list(names))) == line


def test_what_computes_nothing_has_no_regime(trace: Trace) -> None:
    """A fork stands in the table, and is no change of regime."""
    before = timeline.transitions(trace), trace.transitions
    phase = next(p for p in trace.phases if p.observed == "memory")
    fork = {"purpose": "fork", "tokens": 0, "observed": "dispatch", "kv_after": 63}
    trace.write(phase.model_copy(update=fork))

    assert (timeline.transitions(trace), trace.transitions) == before
    row = timeline.phase_row(trace.phases[-1])
    assert (row.cells[0], row.cells[1], row.kind) == ("fork", "nothing to compute", "unknown")


def test_a_contended_phase_is_marked(trace: Trace) -> None:
    """Beside its regime, in the table and for a person; the regime itself has its usual name."""
    decode = next(p for p in trace.phases if p.phase == "decode")
    decode.run_delay_share = 0.62
    assert decode.regime == "memory-bound decode"
    assert timeline.phase_row(decode).cells[1] == "memory-bound decode (contended)"
    assert regime_text(decode).startswith("memory-bound decode (contended): 4 tokens")
    result: Any = SimpleNamespace(phases=trace.phases, usage=Usage(), trace=trace)
    assert turn_parts(result)[-1] == (
        "dispatch-bound prefill → memory-bound decode (contended) → streaming prefill"
    )
    assert timeline.transitions(trace).count("contended") == 0


def test_rich_shows_the_same_lines(trace: Trace) -> None:
    """Stripped of colors, the terminal's table is the plain one; and there are colors."""
    from rich.console import Console

    console = Console(width=120, force_terminal=True, color_system="standard", highlight=False)
    with console.capture() as capture:
        console.print(timeline.rich(trace))
    shown = capture.get()

    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()]
    assert lines == timeline.plain(trace).splitlines()
    assert "\x1b[31m" in shown


def test_a_narrow_terminal_gets_stars(trace: Trace) -> None:
    """Where the column of predictions does not fit, a star marks the wrong ones."""
    from rich.console import Console

    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(timeline.rich(trace, 80))
    lines = capture.get().splitlines()

    assert max(map(len, lines)) <= 80
    assert "predicted" not in lines[0]
    assert lines[1].startswith("prompt       dispatch-bound prefill *")
    assert lines[2].startswith("tool call    memory-bound decode      ")
    assert lines[6] == "* the cost model predicted another regime"


@pytest.mark.parametrize("width", [60, 50])
def test_a_narrower_terminal_gets_fewer_columns(trace: Trace, width: int) -> None:
    """No line of the table is broken; phase, regime and time stay."""
    from rich.console import Console

    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(timeline.rich(trace, width))
    lines = capture.get().splitlines()
    plain = timeline.plain(trace, width).splitlines()

    for shown in (lines, plain):
        assert max(map(len, shown)) <= width
        assert shown[0].startswith("phase        regime")
        assert "time" in shown[0]
        assert "KV" not in shown[0]
        assert shown[2].startswith("tool call    memory-bound decode")


def test_turns_have_titles(run_events: list[AnyEvent]) -> None:
    """With several turns each is headed by its question."""
    trace = Trace()
    for turn in (1, 2):
        for event in run_events[1:4]:
            trace.write(event.model_copy(update={"turn": turn}))

    lines = timeline.plain(trace).splitlines()

    assert lines[1] == "turn 1: What's the error in app.log?"
    assert lines[4] == "turn 2: What's the error in app.log?"


def test_without_wrong_predictions_there_is_no_column_for_them(trace: Trace) -> None:
    """The column appears only where a prediction missed."""
    trace.events = [e for e in trace.events if getattr(e, "purpose", "") != "prompt"]

    assert "predicted" not in timeline.plain(trace)


def test_an_empty_trace_has_a_table() -> None:
    """A run that was killed at once shows headings and zeros."""
    lines = timeline.plain(Trace()).splitlines()

    assert lines[0].split() == ["phase", "regime", "tokens", "KV", "time", "tok/s", "of", "limit"]
    assert lines[1] == "input 0 tokens (0 cached), output 0"


def test_a_torn_tail_is_told(trace: Trace) -> None:
    """What could not be read is not passed over."""
    trace.torn = '{"v":2,"ev'

    told = timeline.plain(trace).splitlines()[-1]
    assert told == 'incomplete: the last line is cut off: {"v":2,"ev'


def test_ttft_is_that_of_the_first_turn(run_events: list[AnyEvent]) -> None:
    """Also where that had no answer, and a later one had."""
    cut = run_events[:4]
    later = [event.model_copy(update={"turn": 2}) for event in run_events[1:-1]]
    later[-1] = later[-1].model_copy(update={"ttft_s": 7.0})

    assert timeline.totals(Trace([*cut, *later])).ttft_s == 0.012


def test_drafts_that_were_all_wrong_saved_nothing(trace: Trace) -> None:
    """What was saved is of forced tokens then, or noise."""
    decode = trace.phases[1]
    decode.drafted_tokens, decode.saved_s = 4, 0.00471
    assert timeline.fewer_passes(trace)[0].endswith(": 0 of 4 drafted tokens accepted")
    decode.accepted_tokens = 1
    assert timeline.fewer_passes(trace)[0].endswith(
        "1 of 4 drafted tokens accepted (4.71 ms saved)"
    )


@pytest.mark.parametrize("ts", [-1.0, 1e300, math.inf, math.nan])
def test_a_time_that_is_none_is_listed(run_events: list[AnyEvent], ts: float) -> None:
    """One such file does not hide the others."""
    run_events[0].ts = ts

    (row,) = report.of_many([(Path("a.jsonl"), Trace(run_events))]).rows

    assert row[:2] == ("a", "?")


def test_long_runs_name_their_first_regimes(trace: Trace) -> None:
    """The line of regimes stays a line."""
    phases: list[AnyEvent] = [*trace.phases]
    trace.events = phases * 50
    assert timeline.transitions(trace).endswith("decode) × 50")

    trace.events = random.Random(1).choices(phases, k=200)

    assert re.search(r"→ … \([0-9]+ more\)$", timeline.transitions(trace))


def test_a_failed_tool_shows_its_error() -> None:
    """The row of a failed call holds the message instead of a size."""
    tool = ToolEvent(name="read_file", arguments={"path": "x\n", "start": 3}, error="no such file")

    text = timeline.tool_row(tool).cells[0]

    assert text == '  read_file(path="x\\n", start=3): error: no such file'


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (4.12e-7, "412 ns"),
        (0.0008404, "840 µs"),
        (0.00314, "3.14 ms"),
        (0.0123, "12.3 ms"),
        (0.4567, "457 ms"),
        (12.345, "12.3 s"),
        (185.2, "3 min 05 s"),
        (1e300, "1e+300 s"),
        (float("nan"), "nan s"),
    ],
)
def test_durations_are_in_the_unit_that_suits(seconds: float, text: str) -> None:
    """Three figures, in ns, µs, ms, s or minutes."""
    assert timeline.duration(seconds) == text


@pytest.mark.parametrize(
    ("per_second", "text"), [(14200.4, "14,200"), (88.53, "88.5"), (3.214, "3.21"), (0, "0.00")]
)
def test_rates_have_three_figures(per_second: float, text: str) -> None:
    """Tokens per second with the figures that mean something."""
    assert timeline.rate(per_second) == text


def test_printable_escapes_what_steers_or_hides() -> None:
    """Controls, separators, direction marks and surrogates are written out; letters stay."""
    assert printable("a\x1b[31m\r\n\tb") == "a\\x1b[31m\\r\\n\\tb"
    assert printable("a\r\n\tb\x9b", block=True) == "a\\r\n\tb\\x9b"
    hidden = "\u200b\u2060\u2062\xad\u034f\u180e\u206b\u3164\uffa0\U0001d173\ufe00\U000e0100"
    assert printable(f"a{hidden}b").isascii()
    for said in ("❤️ 1️⃣ 👩‍💻 🏳️‍🌈", "می‌خواهم"):  # emoji, and a joiner between letters
        assert printable(said) == said
    assert printable("a\ufe0f") == "a\\ufe0f"
    assert printable("\u2028\u202e\ud800\U000e0041") == "\\u2028\\u202e\\ud800\\U000e0041"
    assert printable("\ufffe\uffff\ufffd") == "\\ufffe\\uffff\ufffd"
    assert printable("Zeit µs 温度 🌡 \\x1b") == "Zeit µs 温度 🌡 \\x1b"


def test_short_fits_its_width() -> None:
    """Cut text ends in an ellipsis and is never longer than asked; escapes count too."""
    assert short("hello", 5) == "hello"
    assert short("hello!", 5) == "hell…"
    assert all(len(short("\x1b" * n, 10)) <= 10 for n in range(30))


def test_limit_names(trace: Trace) -> None:
    """A memory-bound phase names its level, the others their bound."""
    phase = trace.phases[0]
    assert isinstance(phase, PhaseEvent)
    assert timeline.limit_name(phase) == "busy"
    assert timeline.limit_name(phase.model_copy(update={"observed": "compute"})) == "peak"
    assert timeline.limit_name(phase.model_copy(update={"observed": "memory"})) == "memory"


def test_shared_passes_are_in_the_summary(shared_events: list[AnyEvent]) -> None:
    """How many passes others shared, with how many, and what this run's part of them took."""
    lines = timeline.summary(Trace(shared_events))

    assert "shared 3 of 5 passes, 2.67 sequences in each on average: its share took 14 ms" in lines


def test_states_and_experts_are_told(trace: Trace) -> None:
    """Of a model that has them: bytes of a sequence, and what passes read and wrote of them; a
    prefill's passes touch more experts than a decode's."""
    assert timeline.states_and_experts(trace) == []  # a dense model
    assert trace.header is not None
    model = trace.header.model
    for name, value in {"kv_bytes": 20480.0, "state_bytes": 65863680, "experts": 256}.items():
        setattr(model, name, value)
    model.experts_used = 8
    for event in trace.phases:
        event.passes = 2 if event.phase == "decode" else 1
        event.experts = 8.0 if event.phase == "decode" else 150.5
    trace.phases[0].experts = None  # as of a phase that took all from elsewhere
    passes = sum(phase.passes for phase in trace.phases)

    state, experts = timeline.states_and_experts(trace)

    assert state.startswith("state 65.9 MB at any length: ")
    assert f"read and written in {passes} passes; 20.5 kB of KV cache per token" in state
    assert (
        experts
        == "experts 8 of 256 per token: a layer read 150 in a prefill's pass, 8 in a decode's"
    )
    assert state in timeline.plain(trace)


def test_a_model_that_says_nothing_of_experts_read(trace: Trace) -> None:
    """A trace of another engine's: what is not known is not told."""
    assert trace.header is not None
    trace.header.model.experts, trace.header.model.experts_used = 32, 4

    assert timeline.states_and_experts(trace) == ["experts 4 of 32 per token"]
