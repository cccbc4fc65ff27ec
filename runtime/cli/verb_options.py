"""The options of the verbs without commands; those of the others are in their packages."""

from __future__ import annotations

import argparse

from .agent_options import AGENT_OPTIONS, AgentOptions, RecordOptions, group_names, trace
from .arguments import whole
from .load_engine import DEFAULT_MODEL, MODEL, EngineOptions, engine_options, named, nbytes
from .option_groups import OptionGroup, Section, argument, option
from .options import seconds, share, within
from .sampling_options import SamplingOptions
from .traces import TRACE


def until(text: str) -> float:
    """Parse a deadline: a time of day, a date, or a duration from now."""
    from ..fleet.api import parse_until

    try:
        return parse_until(text)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not a time such as 18:00, 2026-11-23T18:00, 30m or 8h"
        ) from None


def money(text: str) -> float:
    """Parse a nonnegative amount of money."""
    return within(text, "an amount of 0 or more", lambda number: 0 <= number < 1e12)


def price(text: str) -> tuple[str, float]:
    """Parse a price such as ``in=0.25``."""
    name, _, amount = text.partition("=")
    if name not in ("in", "cached", "out", "hour"):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not in=X, cached=X, out=X or hour=X")
    return name, money(amount)


def _port(text: str) -> int:
    return whole(text, "a port from 0 to 65535", lambda number: number < 2**16)


def _nbytes_or_none(text: str) -> int:
    """Parse a size; return 0 for ``off``."""
    return 0 if text == "off" else nbytes(text)


def step(text: str) -> tuple[int, int]:
    """Parse a turn and a step: ``2.1``, or ``2``."""
    parts = text.split(".")
    if not 1 <= len(parts) <= 2 or not all(p.isascii() and p.isdigit() and int(p) for p in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a step; give TURN or TURN.STEP, such as 2.1"
        )
    return int(parts[0]), int(parts[-1]) if len(parts) == 2 else 1


def speed(text: str) -> float:
    """Parse a speed factor; ``max`` is infinite."""
    given = "inf" if text == "max" else text
    return within(given, "a speed; give 1, 10, … or max", lambda number: number > 0)


class RunOptions(OptionGroup):
    """What is asked and shown, and in which form the answer is."""

    question: str = argument("QUESTION")
    """the question; - reads it from stdin. Piped text and files named as @PATH are attached to
    it"""

    shown = Section("output")
    schema: str | None = option("FILE")
    """answer in JSON that fits the JSON schema in FILE"""
    show_phases: bool = option()
    """show each phase as it ends, and regime changes"""
    show_prompt: bool = option()
    """show the prompt as the model would read it, and run nothing"""


class MapOptions(OptionGroup):
    """The rows and their results, where they run, and how often they are tried."""

    questions: str | None = argument("QUESTIONS", nargs="?")
    """file with a row per question: JSON lines (- reads them from stdin), CSV or Parquet"""
    output: str = option("-o", "FILE", required=True)
    """results file; rows already in it are skipped"""

    row = Section("rows")
    question: str | None = option("TEXT")
    """the question of every row: "What failed in {name}?\""""
    dir_from: str | None = option("FOLDER")
    """make a row for each folder in FOLDER: {name} and {dir}"""
    dir: str | None = option("D", type=named)
    """folder for rows that name none (default: .)"""
    order: str = option(choices=("input", "done"), default="input")
    """final order of the results: as in the input, or as they finished"""

    place = Section("where rows run")
    to: str = option("WHERE", default="local:4")
    """local:N (N agents on one engine), http://HOST:PORT[,…] (servers), auto or ray://HOST:PORT (a
    Ray cluster)"""
    parallel: int | None = option()
    """concurrent rows per server or engine (default: 4)"""
    workers: int | None = option()
    """engines on the cluster (default: as many as fit)"""
    worker_memory: int | None = option("SIZE", type=nbytes)
    """memory for each engine on the cluster"""
    patience: float = option("S", type=seconds, default=60.0)
    """give up on a server after S seconds without a response"""

    attempt = Section("attempts and limits")
    attempts: int = option(default=3)
    """attempts per row before it is set aside"""
    retry_failed: bool = option()
    """retry rows that failed or were set aside"""
    until: float | None = option("TIME", type=until)
    """start no rows after this time (18:00) or this long (30m, 8h)"""
    max_cost: float | None = option("X", type=money)
    """stop starting rows when the total cost would exceed X"""
    price: list[tuple[str, float]] | None = option("KEY=X", action="append", type=price)
    """price: in, cached or out per million tokens, hour per hour of a row; repeatable"""


class ShownOptions(OptionGroup):
    """What is shown, and in which form the answers are."""

    title = Section("output")
    schema: str | None = option("FILE")
    """answer in JSON that fits the JSON schema in FILE"""
    quiet: bool = option("-q")
    """show no progress and no summary"""


class ServeOptions(OptionGroup):
    """What is served, where and to whom, and what is recorded."""

    served = Section("served models")
    alias: list[str] | None = option("NAME=MODEL")
    """another name for a served model or agent; repeatable"""
    default_model: str | None = option("NAME")
    """the served model that answers requests that name none or an unknown one (default: the first;
    with several models, unknown names are refused)"""
    keep_alive: str | None = option("TIME")
    """unload a model after this time without a request, e.g. 30m, 2h, forever (default: 30m)"""
    memory: int | None = option("SIZE", type=nbytes)
    """memory for the weights of all loaded models together; one model is always loaded (default:
    what is free at startup)"""
    pooling: str | None = option(choices=("none", "mean", "cls", "last"))
    """how to pool token states into embeddings (default: as the model file says)"""
    agents: list[str] = option("DIR", nargs="+", default=())
    """offer an agent for each folder, as the model agent:NAME"""

    reached = Section("address and access")
    host: str = option("HOST", default="127.0.0.1")
    """address to listen on"""
    port: int | None = option("N", type=_port)
    """port to listen on (default: 11435)"""
    api_key: list[str] | None = option("KEY")
    """require this API key; repeatable"""
    api_key_file: str | None = option("FILE")
    """file of API keys, one per line, as KEY or NAME KEY; keeps keys out of the process list"""
    operator_key_file: str | None = option("FILE")
    """file of operator keys, one per line; then only these open /metrics and the status page's
    data"""
    public_prefix: list[str] | None = option("FILE")
    """file with a system prompt whose cached prefix all keys share; repeatable"""
    allow_host: list[str] | None = option("NAME")
    """accept requests for this host name too; repeatable"""
    allow_origin: list[str] | None = option("URL")
    """accept requests from web pages at this origin; repeatable"""

    limits = Section("load")
    parallel: int = option(default=32)
    """maximum number of concurrent requests"""
    queue: int = option(default=256)
    """maximum number of queued requests"""
    keep_responses: int = option("SIZE", type=_nbytes_or_none, default=64 << 20)
    """memory per key for responses that previous_response_id can name; off keeps none (default:
    64MB)"""

    recorded = Section("trace")
    trace: str | bool | None = option("WHERE", type=trace)
    """trace folder, or off (default: served, in the state folder)"""
    trace_requests: str = option(choices=("errors", "all"), default="errors")
    """which requests to trace"""
    trace_limit: int = option("SIZE", type=nbytes, default=10**9)
    """maximum size of that folder; the oldest traces are removed (default: 1GB)"""
    otlp: str | None = option("URL")
    """send request spans to this OTLP endpoint, such as http://127.0.0.1:4318/v1/traces"""
    otlp_metrics: str | None = option("URL")
    """send request metrics to this OTLP endpoint, such as http://127.0.0.1:4318/v1/metrics"""
    otlp_content: bool = option()
    """include questions and answers in the spans"""


class PsOptions(OptionGroup):
    """The address of the server."""

    url: str | None = option("URL")
    """address of the server; TRIPLEPOINT_API_KEY holds its key (default: http://127.0.0.1:11435)"""


class ReplayOptions(OptionGroup):
    """The run, and what is done with it."""

    recording: str = argument("TRACE", TRACE)
    speed: float | None = option("X", type=speed)
    """play it back at X times the recorded speed; max: without waiting"""
    verify: bool = option(one_of="what")
    """run the model again with the recorded tool results and compare every token"""
    benchmark: bool = option(one_of="what")
    """time the recorded work on this machine and compare"""
    start: tuple[int, int] | None = option("--from", "TURN[.STEP]", type=step, one_of="what")
    """continue live from this step, in a new trace"""
    dir: str | None = option("D", type=named)
    """folder for tools that run (default: the recorded one)"""

    verifying = Section("with --verify")
    live_tools: bool = option()
    """rerun the calls that only read"""

    forking = Section("with --from")
    question: str | None = option("TEXT")
    """ask this question instead"""
    tools: list[str] | None = option("GROUP,…", type=group_names)
    """tool groups as for `run` (default: the recorded ones)"""
    trace: str | bool | None = option("WHERE", type=trace)
    """trace file, or off (default: a new one in the state folder)"""

    timing = Section("with --benchmark")
    skip_tool_delays: bool = option()
    """do not pause where tools ran"""
    predict: bool = option()
    """predict with the cost model, run nothing"""
    machine: str | None = option("FILE")
    """with --predict: another machine's limits, from `doctor --json` or a trace"""


class EvalOptions(OptionGroup):
    """The suite, which attempts are made, and what is shown of them."""

    suite: str = argument("SUITE")
    """suite file: .yaml, .toml or .json"""
    output: str | None = option("-o", "FILE")
    """results file (default: SUITE.results.jsonl in this folder)"""
    fresh: bool = option()
    """discard existing results"""
    report_only: bool = option()
    """run nothing; show existing results"""

    selection = Section("what is asked")
    model: list[str] | None = option("-m", "MODEL")
    """model to use instead of the suite's; repeatable"""
    task: list[str] | None = option("NAME")
    """only tasks or groups whose name starts with NAME; repeatable"""
    repeats: int | None = option()
    """attempts per task, instead of the suite's number"""
    parallel: int = option(default=1)
    """concurrent attempts"""

    recorded = Section("trace")
    trace: str | bool | None = option("WHERE", type=trace)
    """trace folder, or off (default: off)"""

    shown = Section("output")
    misses: bool = option()
    """list failed attempts and why they failed"""
    html: str | None = option("FILE")
    """write an HTML page with all tables"""
    min_accuracy: float | None = option("SHARE", type=share)
    """exit with status 1 if a model's accuracy is below SHARE, such as 0.8"""


class RegimesOptions(OptionGroup):
    """The model, and what is drawn."""

    model: str | None = argument("MODEL", f"{MODEL} ({DEFAULT_MODEL})", nargs="?", type=named)
    run: str | None = option("TRACE")
    """draw this recorded run on the diagram"""
    batch: list[int] | None = option("B,…")
    """also draw the diagram for B sequences per pass: how the memory-bound region shrinks"""
    beside: list[str] | None = option("MODEL", nargs="+")
    """draw the diagrams of these models side by side in one .svg"""
    output: str | None = option("-o", "FILE")
    """write the diagram to an .svg or .html file"""
    measure: bool = option()
    """time some points and draw them too"""
    recalibrate: bool = option()
    """measure the kernels again instead of using the saved calibration"""


class CompletionOptions(OptionGroup):
    """The name of the shell."""

    shell: str = argument(choices=("bash", "zsh", "fish"))
    """shell that reads the script"""


OPTIONS = {
    "run": (*AGENT_OPTIONS, RunOptions),
    "chat": AGENT_OPTIONS,
    "map": (
        *(MapOptions, engine_options()),
        # Rows are answered without a person: nobody is asked, and no server of tools is started.
        AgentOptions.omit("dir", "session", "resume", "mcp").but(
            mode={
                "choices": ("read-only", "yes"),
                "default": "read-only",
                "help": "calls that do more than read: refuse them, ask before each, or allow "
                "them all",
            },
        ),
        SamplingOptions,
        RecordOptions.only("trace", "redact").but(
            trace={"help": "trace folder, or off (default: beside the results)"},
        ),
        ShownOptions,
    ),
    "serve": (
        engine_options(f"{DEFAULT_MODEL}; repeatable, also as NAME=MODEL", several=True),
        *(ServeOptions, AgentOptions.only("harness", "grounded")),
    ),
    "ps": (PsOptions,),
    "replay": (ReplayOptions, engine_options("default: the recorded one")),
    "eval": (EvalOptions,),
    "regimes": (RegimesOptions, EngineOptions.only("threads", "target", "kv", "context")),
    "completion": (CompletionOptions,),
}
