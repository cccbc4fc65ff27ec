"""The arguments of every verb. Nothing heavy is imported here: `--help` must be instant."""

from __future__ import annotations

import argparse
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from .keeping import DEFAULT_MODEL, add_models
from .making import add_making
from .regime_arguments import add_regimes
from .replay_arguments import add_replay
from .sampling import add_sampling_options
from .toolbox import add_tool_options
from .trace_arguments import add_sessions, add_trace

if TYPE_CHECKING:
    from ..bench.runner import Case

DESCRIPTION = """\
An agent on your own CPU: it answers questions about your files, on kernels
generated for this machine, and records which regime every phase ran in."""
EPILOG = """\
exit status: 0 done, 1 failed or not verified, 2 wrong usage, 3 a model or file
problem, 4 a limit was reached, 130 interrupted. NO_COLOR turns colors off;
TRIPLEPOINT_DEBUG=1 shows tracebacks; TRIPLEPOINT_TARGET picks a lesser CPU
target."""


OTHER_NAMES = {
    "list": "ls",
    "models": "ls",
    "remove": "rm",
    "delete": "rm",
    "download": "pull",
    "get": "pull",
    "info": "show",
    "inspect": "show",
    "ask": "run",
    "prompt": "run",
    "benchmark": "bench",
    "quantize": "quantize",
}
"""What other programs call the verbs."""
_NO_SERVER = "triplepoint has no server; -m http://HOST:PORT/v1 asks the model of another one"


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong on one line, where argparse would print every option there is.

    Options are written out: what an abbreviation means would change with each new option.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        self.exit(2, f"{self.prog}: error: {message} ({self.prog} --help lists what there is)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As argparse does; what is not understood is told by the parser of its verb.

        Words that take any number may also stand behind an option: argparse takes those before the
        first option for all of them.
        """
        found, rest = super().parse_known_args(args, namespace)
        many = [a.dest for a in self._actions if a.nargs == "*" and not a.option_strings]
        if many and rest and not any(word.startswith("-") for word in rest):
            setattr(found, many[-1], [*getattr(found, many[-1]), *rest])
            rest = []
        if rest:
            self._refuse(rest, getattr(found, "question", None))
        return found, rest

    def _refuse(self, rest: list[str], question: str | None) -> NoReturn:
        flags = [word for word in rest if word.startswith("-") and len(word) > 1]
        if question is not None and not flags:
            whole = " ".join((question, *rest)).replace('"', '\\"')
            self.error(f'the question is one argument: quote it: {self.prog} "{whole}"')
        name = (flags or rest)[0].partition("=")[0]
        near = get_close_matches(name, self._option_string_actions, n=1, cutoff=0.7)
        hint = f"; did you mean {near[0]}?" if near and flags else ""
        self.error(f"{'no such option' if flags else 'one argument too many'}: {name}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if not isinstance(action, argparse._SubParsersAction) or value in action.choices:
            super()._check_value(action, value)
            return
        if value in ("serve", "server", "ps"):
            raise argparse.ArgumentError(None, _NO_SERVER)
        known = list(action.choices)
        near = [OTHER_NAMES[value]] if OTHER_NAMES.get(value) in known else []
        close = get_close_matches(value, known, n=2)
        near += sorted(close, key=lambda name: abs(len(name) - len(value)))
        hint = (
            f"did you mean {' or '.join(dict.fromkeys(near))}?"
            if near
            else f"there are {', '.join(known)}"
        )
        what = (action.metavar or "verb") if isinstance(action.metavar, str) else "verb"
        raise argparse.ArgumentError(None, f"no such {what.lower()}: {value!r}; {hint}")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line; the chosen verb is in ``verb``.

    Args:
        only: a verb that is known to be the one: the options of others may be missing then, whose
            parsers take as long to make as the run's first pass.
    """
    from ... import __version__

    parser = OneLineParser(
        prog="triplepoint",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"triplepoint {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    if only in _OFTEN:
        _OFTEN[only](verbs)
        return parser
    for add in _OFTEN.values():
        add(verbs)
    _add_replay(verbs)
    add_trace(verbs)
    add_sessions(verbs)
    _add_doctor(verbs)
    _add_bench(verbs)
    add_regimes(lambda name, summary: _verb(verbs, name, summary), positive, numbers)
    add_models(lambda name, summary: _verb(verbs, name, summary))
    add_making(lambda name, summary: _verb(verbs, name, summary), positive)
    return parser


def _add_run(verbs: argparse._SubParsersAction) -> None:
    run = _verb(verbs, "run", "answer one question about the files in a folder")
    run.add_argument(
        "question",
        metavar="QUESTION",
        help="the question; - reads it from stdin. Text that is piped in is attached to it, and "
        "so are files that it names as @PATH",
    )
    _agent_options(run)
    run.add_argument(
        "--schema", metavar="FILE", help="the answer is JSON that fits this JSON schema"
    )
    run.add_argument(
        "--show-phases",
        action="store_true",
        help="show each phase as it ends, and changes of regime",
    )


def _add_chat(verbs: argparse._SubParsersAction) -> None:
    chat = _verb(verbs, "chat", "ask several questions in a row; /help lists the commands")
    _agent_options(chat)


def _add_replay(verbs: argparse._SubParsersAction) -> None:
    replay = _verb(verbs, "replay", "show, verify, time or continue a recorded run")
    add_replay(replay)
    _engine_options(replay, model="the recorded one")


def _add_doctor(verbs: argparse._SubParsersAction) -> None:
    doctor = _verb(verbs, "doctor", "what this CPU is, what it can do, and where things are kept")
    doctor.add_argument("--measure", action="store_true", help="measure the limits again")
    doctor.add_argument(
        "-t", "--threads", type=positive, metavar="N", help="measure with N threads"
    )


def _add_bench(verbs: argparse._SubParsersAction) -> None:
    bench = _verb(verbs, "bench", "measure prefill and decode speed, as llama-bench does")
    _engine_options(bench, context=False)
    bench.add_argument(
        "--trace", metavar="TRACE", help="time the work of this run, or of one in the library"
    )
    bench.add_argument(
        "-p", "--n-prompt", type=numbers, default=[512], metavar="N,…", help="prompt lengths (512)"
    )
    bench.add_argument(
        "-n", "--n-gen", type=numbers, default=[128], metavar="N,…", help="decode lengths (128)"
    )
    bench.add_argument(
        "-d", "--n-depth", type=numbers, default=[0], metavar="N,…", help="KV lengths before (0)"
    )
    bench.add_argument(
        "--tests", type=tests, metavar="NAME,…", help="tests by name, such as pp36,tg32@1024"
    )
    bench.add_argument(
        "-r", "--repetitions", type=positive, default=5, metavar="N", help="times each (5)"
    )
    bench.add_argument(
        "-o", "--output", choices=("md", "csv", "json"), default="md", help="form of the table (md)"
    )
    bench.add_argument(
        "--compare", choices=("llama-cpp",), help="compare with llama-cpp-python, interleaved"
    )
    bench.add_argument(
        "--baseline-python",
        metavar="PATH",
        help="the interpreter that has llama-cpp-python (this one)",
    )
    bench.add_argument(
        "--predict",
        nargs="?",
        const=[1, 4, 16, 64, 256, 1024, 4096],
        type=numbers,
        metavar="N,…",
        help="predict phases of N tokens at each -d, then measure them",
    )
    bench.add_argument(
        "--causal",
        nargs="?",
        const=[1, 2, 4, 8, 16, 64, 256, 1024, 4096],
        type=numbers,
        metavar="N,…",
        help="halve bytes, GEMMs and barriers in passes of N tokens at each -d: does the "
        "observed bound change the time most?",
    )
    bench.add_argument(
        "--batch",
        nargs="?",
        const=[1, 2, 4, 8, 16],
        type=numbers,
        metavar="B,…",
        help="speed of -p and -n tokens with B sequences at once (1,2,4,8,16)",
    )
    bench.add_argument(
        "--agents",
        type=int,
        metavar="N",
        help="N recorded agents at once beside one after another: jobs/hour, latencies",
    )
    bench.add_argument(
        "--beside",
        type=positive,
        metavar="N",
        help="a decode beside a prompt of N tokens: longest gap, speed that the prompt keeps",
    )
    bench.add_argument(
        "--sweep",
        choices=("prompt", "threads", "kv", "quant", "layers"),
        help="speed over one quantity, beside published figures for the shape of the curve",
    )
    bench.add_argument(
        "--speculation",
        action="store_true",
        help="measure drafting and jump-forward on known texts",
    )
    bench.add_argument(
        "--ablate",
        nargs="?",
        const=["threads", "chunk", "kv_split", "spin", "pages"],
        type=lambda text: text.split(","),
        metavar="SETTING,…",
        help="hold threads, chunk, kv_split, spin, pages, tile or whole fixed, beside what is "
        "chosen (all but the last two)",
    )
    bench.add_argument(
        "--workload", metavar="TRACE", help="with --ablate: also run this trace's phases"
    )
    bench.add_argument(
        "--scenario",
        action="store_true",
        help="a run of an agent, phase by phase, with everything on and with everything off",
    )
    bench.add_argument(
        "--kernels",
        nargs="?",
        const=[],
        type=lambda text: text.split(","),
        metavar="NAME,…",
        help="measure the kernels alone (all of them); --target all: for every feature set",
    )


def _verb(verbs: argparse._SubParsersAction, name: str, summary: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    verb.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return verb


_OFTEN = {"run": _add_run, "chat": _add_chat}


def _agent_options(verb: argparse.ArgumentParser) -> None:
    # Of a session that goes on, folder and model are those that it had: `opened` sees to both.
    verb.add_argument("--dir", metavar="D", help="folder the tools may look at (.)")
    _engine_options(verb)
    kept = verb.add_mutually_exclusive_group()
    kept.add_argument(
        "--session",
        type=session,
        metavar="NAME",
        help="save the conversation under NAME, or continue it",
    )
    kept.add_argument(
        "--continue", dest="resume", action="store_true", help="continue the last session"
    )
    beside = verb.add_mutually_exclusive_group()
    beside.add_argument(
        "-v", "--verbose", action="store_true", help="print the table of phases after each answer"
    )
    beside.add_argument(
        "-q", "--quiet", action="store_true", help="print the answer alone, no statistics"
    )
    verb.add_argument("--trace", metavar="FILE", help="trace file (one in the state folder)")
    verb.add_argument("--redact", action="store_true", help="no text and no token ids in the trace")
    verb.add_argument("--profile", action="store_true", help="the time of each layer in the trace")
    verb.add_argument("--max-steps", type=positive, metavar="N", help="model calls at most (8)")
    verb.add_argument(
        "--max-tokens", type=positive, metavar="N", help="tokens generated at most (1,024)"
    )
    verb.add_argument(
        "--auto-compact", action="store_true", help="take old tool results out of a full context"
    )
    verb.add_argument(
        "--repetition-stop",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="end a reply that does nothing but repeat itself, or let it go on to its limit",
    )
    verb.add_argument(
        "--think",
        action=argparse.BooleanOptionalAction,
        help="think before answering, or not (the model's own choice)",
    )
    verb.add_argument(
        "--timeout", type=seconds, metavar="S", help="seconds of the run at most (any)"
    )
    add_tool_options(verb)
    add_sampling_options(verb)


def _engine_options(
    verb: argparse.ArgumentParser, *, model: str = DEFAULT_MODEL, context: bool = True
) -> None:
    verb.add_argument(
        "-m",
        "--model",
        metavar="MODEL",
        help=f"GGUF file, pulled alias or ORG/NAME[:QUANT], nano, or synthetic:… ({model})",
    )
    verb.add_argument(
        "-t",
        "--threads",
        type=positive,
        metavar="N",
        help="threads of every pass (as many as are fastest, up to the cores)",
    )
    verb.add_argument("--target", metavar="T", help="CPU target, e.g. avx2 (the best one)")
    verb.add_argument("--kv", choices=("bf16", "q8", "f32"), help="format of the KV cache (bf16)")
    verb.add_argument(
        "--tune",
        action="append",
        type=setting,
        metavar="KEY=VALUE",
        help="fix a setting that is chosen automatically: chunk=512, kv_split=off, spin=300us, "
        "tile=8, max_single_tile=9, pages=off, adaptive=off; may be repeated",
    )
    verb.add_argument(
        "--kv-memory",
        type=nbytes,
        metavar="SIZE",
        help="memory of all KV caches, e.g. 4GB (three quarters of what is free)",
    )
    verb.add_argument(
        "--cache-packed-weights",
        action="store_true",
        help="keep the packed weights on disk and map them the next time",
    )
    if context:
        verb.add_argument("--context", type=positive, metavar="N", help="context length in tokens")
        verb.add_argument(
            "--draft-tokens",
            type=draft_tokens,
            default="auto",
            metavar="N",
            help="tokens to draft from the context before a pass: a number, off, or auto (auto)",
        )
        verb.add_argument(
            "--jump-forward",
            choices=("on", "off"),
            default="on",
            help="take tokens that the grammar forces without decoding them (on)",
        )


def nbytes(text: str) -> int:
    """A size such as 4GB, 512MB, 1.5GiB or a plain number of bytes."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(i?)b?", text.strip().lower())
    size = 0.0
    if match:
        power = " kmgt".index(match[2] or " ")
        size = float(match[1]) * (1024 if match[3] else 1000) ** power
    if not 1 <= size < 2**63:  # also what is too large for a float: infinity
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 4GB or 512MB")
    return int(size)


def positive(text: str) -> int:
    """A whole number above zero."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def draft_tokens(text: str) -> int | str:
    """``auto``, ``off`` or a number of tokens, as `SpeculativeConfig` takes them."""
    if text in ("auto", "off"):
        return text if text == "auto" else 0
    if not (text.isascii() and text.isdigit() and int(text) <= 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not auto, off or a number up to 16")
    return int(text)


def setting(text: str) -> tuple[str, str]:
    """A setting of passes; whether there is such a one is found out when the model is loaded."""
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting like chunk=512")
    return key, value


def session(text: str) -> str:
    """A name that a session can have."""
    from ..agent.session_store import no_name

    if problem := no_name(text):
        raise argparse.ArgumentTypeError(problem)
    return text


def seconds(text: str) -> float:
    """A time above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def numbers(text: str) -> list[int]:
    """Whole numbers with commas between them; 0 is allowed."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers like 36,512")
    return [int(part) for part in parts]


def tests(text: str) -> list[Case]:
    """Names of benchmark rows with commas between them."""
    from ..bench.runner import case_of

    try:
        return [case_of(name) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
