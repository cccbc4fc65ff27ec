"""Every verb with hostile arguments and streams: a known status and one line that says what.

The verbs and their options are those of the parser: a new one is walked without being named here,
or `GOOD` lacks a value for it and the test says so. Each case runs in a process of its own, forked
from one that has everything imported, so that a crash, a hang or a closed stream is seen as such.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import plain_environment
from helpers.tiers import quick

from triplepoint.runtime.cli.arguments import build_parser
from triplepoint.runtime.cli.exit_codes import Exit

RUNNER = """
import json, os, signal, sys, tempfile
import llguidance, llvmlite.binding, numpy.ctypeslib, platformdirs, pydantic, tokenizers, tomllib
import triplepoint
from triplepoint.runtime.cli import main
from triplepoint.runtime.cli.arguments import build_parser
from triplepoint.runtime.cli import conversation, line_input, replay_verify
from triplepoint.runtime.cli.doctor import disk_usage
from triplepoint.runtime.cli import attaching, slash_commands
from triplepoint.runtime.remote import engine
from triplepoint.runtime.bench import compare, predictions
from triplepoint.runtime.bench import reach, runner
from triplepoint.runtime.engine import engine_timer
from triplepoint.runtime.physics import calibrate
from triplepoint.runtime.evaluate import imatrix
from triplepoint.runtime.hub import find, pull
from triplepoint.runtime.models import qwen3
from triplepoint.runtime.quantize import quantize
from triplepoint.runtime.regimes import diagram
from triplepoint.runtime.suites import definition, report, runner
from triplepoint.runtime.replay import examples
from triplepoint.traces import diff, export_tables
from triplepoint.traces.warehouse import ingest, page, reading, reports
from triplepoint import Agent, Engine, Trace
build_parser(whole=True)

def streams(how):
    if how == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    for number in (0, 1) if how == "closed" else ():
        os.close(number)

for line in sys.stdin:
    case = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os.chdir(case["dir"])
            os.environ.update(case["env"])
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            streams(case["streams"])
            sys.stdin = os.fdopen(0, closefd=False) if case["streams"] != "closed" else None
            status = 99
            try:
                argv = [os.fsdecode(bytes.fromhex(word)) for word in case["argv"]]
                sys.argv[1:] = argv
                from triplepoint.__main__ import main as whole
                status = whole()
                sys.stdout.flush()
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        for file in (out, err):
            file.seek(0)
        said = {"status": os.waitstatus_to_exitcode(status), "argv": case["argv"],
                "out": out.read(5000).decode(errors="replace"),
                "err": err.read(20000).decode(errors="replace")}
    os.write(3, (json.dumps(said) + "\\n").encode())
"""
KNOWN = {int(one) for one in Exit} - {Exit.INTERRUPTED}
HOSTILE = {
    "empty": b"",
    "blank": b" ",
    "word": b"word",
    "negative": b"-1",
    "zero": b"0",
    "huge": b"9" * 5000,
    "nan": b"nan",
    "fraction": b"1e400",
    "bytes": b"\xff\xfe",
    "escape": b"\x1b[2J\n",
    "long": b"x" * 300,
    "folder": b"folder",
    "missing": b"missing/file",
    "text": b"text.txt",
    "cut model": b"cut.gguf",
    "empty file": b"empty",
    "below a file": b"text.txt/x",
    "full device": b"/dev/full",
    "pattern": b"[",
}
EXEMPT = {
    "--open": "would start a browser",
    "--measure": "measures for minutes; it takes no value",
    "--recalibrate": "as --measure",
    "--help": "argparse has it",
    "--version": "argparse has it",
}
GOOD: dict[str, list[bytes]] = {
    "run": [b"Hello", b"-m", b"text.txt"],
    "chat": [b"-m", b"text.txt"],
    "replay": [b"text.txt"],
    "trace ls": [],
    "trace show": [b"text.txt"],
    "trace diff": [b"text.txt", b"text.txt"],
    "trace export": [b"text.txt", b"--format", b"csv"],
    "trace view": [b"text.txt"],
    "trace query": [b"select 1", b"text.txt"],
    "trace ingest": [b"text.txt", b"-o", b"out.duckdb"],
    "trace report": [b"text.txt"],
    "trace rm": [b"missing"],
    "eval": [b"text.txt"],
    "session ls": [],
    "session show": [b"missing"],
    "session rm": [b"missing"],
    "doctor check": [],
    "bench speed": [b"-m", b"text.txt"],
    "bench batch": [b"2", b"-m", b"text.txt"],
    "bench types": [b"Q8_0", b"-m", b"text.txt"],
    "bench agents": [b"2", b"-m", b"text.txt"],
    "bench serve": [b"2", b"-m", b"text.txt", b"--in-process"],
    "bench trace": [b"text.txt"],
    "regimes": [b"text.txt"],
    "map": [b"text.txt", b"-o", b"out.jsonl", b"-m", b"text.txt"],
    "serve": [b"-m", b"text.txt"],
    "ps": [b"--url", b"http://127.0.0.1:9"],
    "models pull": [b"text.txt"],
    "models search": [],
    "plan cost": [b"text.txt"],
    "plan simulate": [b"text.txt"],
    "models use": [b"text.txt"],
    "doctor config": [],
    "models ls": [],
    "models show": [b"text.txt"],
    "models rm": [b"missing/model"],
    "doctor cache": [],
    "make quantize": [b"text.txt", b"out.gguf", b"Q8_0"],
    "make convert": [b"folder", b"out.gguf"],
    "make perplexity": [b"text.txt", b"text.txt"],
    "make imatrix": [b"text.txt", b"text.txt", b"-o", b"out.dat"],
    "completion": [b"text.txt"],
}
"""For each verb arguments that are refused soon, or that do little: models that are none."""
NUMBERS = ("empty", "word", "negative", "zero", "huge", "nan", "fraction", "bytes", "folder")
DEEP = ("--dir", "--trace", "--policy", "--schema", "--session")
"""Options of `run` whose files are looked at beside a model that can be loaded."""
DEEP_VALUES = ("folder", "missing", "text", "bytes", "long", "full device")


def _verbs(parser: argparse.ArgumentParser, words: str = "") -> Iterator[tuple[str, Any]]:
    """Each verb that can be run, with its parser."""
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in inner:
        for name, one in action.choices.items():
            yield from _verbs(one, f"{words} {name}".strip())
    if words and not inner:
        yield words, parser


VERBS = dict(_verbs(build_parser(whole=True)))


def _values(verb: str, action: argparse.Action, flag: str) -> Iterable[str]:
    """All values at the first verb with such an option, a few at the others: one parser has it."""
    first = next(v for v, p in VERBS.items() if flag in p._option_string_actions)
    if action.choices is not None or first != verb:
        return ("empty", "huge", "bytes")
    return HOSTILE if action.type is None else NUMBERS


def _cases(verb: str) -> Iterator[tuple[str, list[bytes], str]]:
    """What is hostile, the arguments after the verb, and how the streams are."""
    base = GOOD[verb]
    yield "full stdout", base, "full"
    yield "closed streams", base, "closed"
    places = [a for a in VERBS[verb]._actions if not a.option_strings]
    for place, _ in enumerate(places):
        for what, value in HOSTILE.items():
            yield what, [*base[:place], value, *base[place + 1 :]], ""
    for action in VERBS[verb]._actions:
        flags = [flag for flag in action.option_strings if flag.startswith("--")]
        flags = flags or list(action.option_strings)
        if not flags or flags[0] in EXEMPT:
            continue
        if action.nargs == 0:
            yield flags[0], [*base, flags[0].encode()], ""
            continue
        for what in _values(verb, action, flags[0]):
            if (flags[0], what) == ("--model", "empty") and verb != "run":
                continue  # the default model: a benchmark of it takes seconds
            yield f"{flags[0]} {what}", [*base, flags[0].encode(), HOSTILE[what]], ""
    if verb == "run":
        deep = [b"Hello", b"-m", b"nano", b"--max-tokens", b"1"]
        for flag in DEEP:
            for what in DEEP_VALUES:
                yield f"{flag} {what} deep", [*deep, flag.encode(), HOSTILE[what]], ""


def _fault(said: dict[str, Any]) -> str:
    """What is wrong with how a case ended; empty if nothing."""
    err = said["err"]
    if said["status"] not in KNOWN:
        return f"status {said['status']}"
    if "Traceback" in err or "a bug:" in err or "Exception ignored" in err:
        return "a traceback"
    errors = [line for line in err.splitlines() if "error: " in line]
    if said["status"] not in (Exit.OK, Exit.LIMIT) and len(errors) != 1:
        return f"{len(errors)} lines of errors"
    if "\x1b" in err or "\x1b" in said["out"]:
        return "a raw escape"
    return ""


def test_every_verb_is_walked() -> None:
    """A new verb needs arguments here that end it soon."""
    assert set(GOOD) == set(VERBS)


# All verbs have one parser and one handler of errors: those whose arguments lead farthest.
OFTEN = {
    "run", "chat", "replay", "trace show", "trace query", "session rm", "bench speed", "map",
    "serve", "models search", "eval", "models use", "models show", "make convert",
}  # fmt: skip


Ask = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """What runs cases, each in a fork of one process that all verbs share."""
    plain = plain_environment("TRIPLEPOINT", "HF_")
    home = {
        "HF_HOME": str(tmp_path_factory.mktemp("hub")),
        "HF_ENDPOINT": "http://127.0.0.1:1",  # nobody is asked for a model
        "TERM": "dumb",
    }
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.dup2({writing}, 3)\n{RUNNER}"],
        stdin=subprocess.PIPE,
        pass_fds=(writing,),
        env=plain | home,
    )
    os.close(writing)
    assert process.stdin is not None
    with process, process.stdin as questions, os.fdopen(reading, "rb") as answers:

        def run(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
            said = []
            for case in cases:
                questions.write((json.dumps(case) + "\n").encode())
                questions.flush()
                said.append(json.loads(answers.readline()))
            return said

        yield run
    assert process.returncode == 0


@pytest.mark.parametrize("verb", quick(GOOD, ci=OFTEN))
def test_every_argument_of_a_verb(verb: str, tmp_path: Path, nano: Path, ask: Ask) -> None:
    """It works, or ends with a known status and one line of error, and never with a traceback."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.txt").write_text("no model, no trace\n")
    (tmp_path / "cut.gguf").write_bytes(nano.read_bytes()[:5000])
    (tmp_path / "empty").touch()
    home = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("STATE", "CONFIG")}
    cases = list(_cases(verb))
    answers = ask([
        {"argv": [word.hex() for word in argv], "streams": how, "dir": str(tmp_path), "env": home}
        for _, rest, how in cases
        for argv in [[*map(str.encode, verb.split()), *(word.replace(b"\0", b"") for word in rest)]]
    ])  # fmt: skip
    assert len(answers) == len(cases)
    faults = [
        f"{verb} · {what}: {fault}: {answer['err'][-700:]!r}"
        for (what, _, _), answer in zip(cases, answers, strict=True)
        if (fault := _fault(answer))
    ]
    assert not faults, "\n" + "\n".join(faults)
