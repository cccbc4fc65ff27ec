"""The command line itself: help, usage errors, exit statuses, clear messages."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.notices import without_notices

from triplepoint import errors
from triplepoint.jit.kv_formats import KV_FORMATS
from triplepoint.runtime import config
from triplepoint.runtime.cli import bench, doctor, main, make, models, plan
from triplepoint.runtime.cli.arguments import VERBS, build_parser, numbers
from triplepoint.runtime.cli.exit_codes import Exit, as_flags, explain
from triplepoint.runtime.cli.output import Output, log_shown
from triplepoint.runtime.physics.machine import pool_size, usable_cores

COMMANDS = {
    "bench": bench.COMMANDS,
    "doctor": doctor.COMMANDS,
    "make": make.COMMANDS,
    "models": models.COMMANDS,
    "plan": plan.COMMANDS,
}
Run = Callable[..., "subprocess.CompletedProcess[str]"]
HELPS = [
    [],
    *([verb] for verb in VERBS),
    ["trace", "show"],
    *([verb, name] for verb, names in COMMANDS.items() for name in names),
]


def test_help_names_every_verb(triplepoint: Run) -> None:
    """`--help` lists the verbs and what the exit status means."""
    done = triplepoint("--help")

    assert done.returncode == 0
    assert all(re.search(rf"\n    {verb}\s", done.stdout) for verb in VERBS)
    assert "130 interrupted" in done.stdout


@pytest.mark.parametrize("words", HELPS[1:], ids=" ".join)
def test_each_verb_has_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each verb explains its options, or names its commands."""
    assert main([*words, "--help"]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: triplepoint {' '.join(words)} ")
    assert "--json" in shown or "COMMAND" in shown or words == ["completion"]


@pytest.mark.parametrize(
    "args", [["run", "--quie", "x"], ["trace", "ls", "--lim", "3"], ["--vers"], ["models", "--js"]]
)
def test_options_are_written_out(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An option that is cut short is refused: another one may begin like that tomorrow."""
    assert main(args) == 2

    assert "no such option: --" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    """What makes a start slow is not imported for the help, whichever is asked for."""
    code = (
        f"import sys; from triplepoint.runtime.cli import main; words = {HELPS}\n"
        "assert not any([main([*one, '--help']) for one in words])\n"
        "heavy = {'numpy', 'llvmlite', 'pydantic', 'rich', 'tokenizers', 'jinja2',"
        " 'httpx', 'llguidance', 'asyncio', 'dataclasses', 'inspect', 'statistics', 'datetime',"
        " 'triplepoint.traces.events', 'triplepoint.jit.targets', 'triplepoint.tools'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_run_imports_only_what_it_uses(tmp_path: Path) -> None:
    """A question to the embedded model needs no network, no Hub and no settings file, and nothing
    that checks types, logs or draws."""
    (tmp_path / "app.log").write_text("INFO started\nERROR payment: connection refused\n")
    args = ["run", "-q", "What's the error in app.log?", "--dir", str(tmp_path)]
    code = (
        "import sys; before = set(sys.modules); from triplepoint.runtime.cli import main\n"
        f"assert main({[*args, '--trace', str(tmp_path / 't.jsonl')]!r}) == 0\n"
        "needless = {'filelock', 'http', 'httpx', 'huggingface_hub', 'mcp', 'multiprocessing',"
        " 'numpy.random', 'numpy.testing', 'tomllib', 'unittest', 'pydantic', 'structlog', 'rich',"
        " 'asyncio', 'ssl'} & set(sys.modules)\n"
        "assert not needless, needless\n"
        "new = [m.split('.')[0] for m in sys.modules.keys() - before]\n"
        "new = [m for m in new if m not in sys.stdlib_module_names]\n"
        "assert len(new) < 550, {m: new.count(m) for m in new}"
    )

    command = [sys.executable, "-c", code]
    subprocess.run(command, capture_output=True)  # may compile kernels and measure the machine
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["fly"],
        ["run"],
        ["replay"],
        ["run", "x", "--threads", "0"],
        ["run", "x", "--threads", "two"],
        ["run", "x", "--kv", "q2"],
        ["bench", "-p", "12,x"],
        ["run", "x", "--session", "a/b"],
        ["chat", "--session", ".."],
        ["run", "x", "--tune", "color=red"],
        ["run", "x", "--tune", "chunk=many"],
        ["run", "x", "--tune", "spin=long"],
        ["run", "x", "--threads", "9999"],
        ["run", ""],
        ["run", " "],
        ["doctor", "--threads", "9999"],
        ["run", "x", "-m", "http://"],
        ["run", "x", "--context", "999999"],
        ["chat", "--context", "999999"],
        ["chat", "--sampling", "logit_bias=999999:1"],
        ["replay", "chat", "--benchmark", "--tune", "color=red"],
        ["bench", "-p", "0", "-n", "0"],
        ["bench", "--workload", "chat"],
        ["bench", "-r", "1", "batch", "2"],
        ["bench", "batch", "2", "-d", "5"],
        ["bench", "agents", "2", "-p", "5"],
        ["run", "x", "-m", ""],
        ["run", "x", "--dir", ""],
        ["use", ""],
        ["regimes", ""],
        ["ps", "--url", "localhost"],
        ["replay", "chat", "--from", "1", "--question", " "],
    ],
)
def test_wrong_usage_is_status_2(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """A wrong command line is explained on one line, and is status 2; none at all is the help."""
    assert main(args) == Exit.USAGE

    shown = capfd.readouterr()
    if not args:
        assert shown.err.startswith("usage: triplepoint")
        return
    assert shown.out == ""
    assert len(without_notices(shown.err).splitlines()) == 1
    assert shown.err.startswith("triplepoint")
    assert "error: " in shown.err


def test_a_question_without_a_verb(capfd: pytest.CaptureFixture[str]) -> None:
    """What was meant is shown whole."""
    assert main(["What failed?", "--dir", "x"]) == Exit.USAGE
    assert 'did you mean triplepoint run "What failed?"?' in capfd.readouterr().err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            "run hi there",
            'run: error: the question must be one argument; quote it: triplepoint run "',
        ),
        ("run hi --dri x", "triplepoint run: error: no such option: --dri; did you mean --dir?"),
        ("run hi there --dri x", "(see triplepoint run --help)"),
        ("trace show x --layres", "trace show: error: no such option: --layres; did you mean --la"),
        ("run -- --hi --dir x", "run: error: --dir comes after --, where options are plain words"),
        ("chat hello", "triplepoint chat: error: unexpected argument: hello"),
        ("rum hi", "no such verb: 'rum'; did you mean run or rm?"),
        ("rum hi --dir .", "no such verb: 'rum'; did you mean run or rm?"),
        ("list", "no such verb: 'list'; did you mean ls?"),
        ("version", "no such verb: 'version'; did you mean --version?"),
        ("server", "no such verb: 'server'; did you mean serve?"),
        ("trace lst", "triplepoint trace: error: no such command: 'lst'; did you mean ls?"),
        ("convert a b", "no such verb: 'convert'; it is now triplepoint make convert"),
        ("config", "no such verb: 'config'; it is now triplepoint doctor config"),
        ("run x --no-think", "no such option: --no-think; it is now --think off"),
        ("run x --min-p=0.1", "no such option: --min-p; it is now --sampling min_p=P"),
        ("chat --yes", "no such option: --yes; it is now --mode yes"),
        ("plan cost --concurrency 2", "no such option: --concurrency; it is now --parallel"),
        ("fly", "no such verb: 'fly'; choose from run, chat, "),
        ("run x -t 9999", "threads must be from 1 to 256, not 9999"),
        (
            "bench --serve 1,16",
            "bench speed: error: no such option: --serve",
        ),
        ("bench batch 2 -d 5", "bench batch: error: no such option: -d"),
        (
            "bench -m nano batch 2",
            "bench: error: batch comes first: triplepoint bench batch -m nano 2",
        ),
        (
            "bench batsch",
            "bench: error: no such command: 'batsch'; did you mean batch?",
        ),
    ],
)
def test_a_slip_gets_a_hint(args: str, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What was probably meant, by the name of the verb that it was meant for; nothing is done."""
    assert main(args.split()) == Exit.USAGE

    shown = capfd.readouterr()
    assert says in shown.err
    assert shown.out == ""


def test_the_quoted_question_of_a_hint_is_one(capfd: pytest.CaptureFixture[str]) -> None:
    """The hint can be pasted into a shell."""
    main(["run", 'say "hi"', "there"])

    command = capfd.readouterr().err.partition("quote it: ")[2].rpartition(" (")[0]
    assert shlex.split(command) == ["triplepoint", "run", 'say "hi" there']


def test_more_threads_than_cores(capsys: pytest.CaptureFixture[str]) -> None:
    """They are reduced to the cores, with a note that names both; with -q without one."""
    cores = usable_cores()
    told = f"triplepoint: {cores + 62} threads do not fit {cores} usable cores; using {cores}\n"
    for quiet, said in ((False, told), (True, "")):
        with log_shown(Output(), quiet=quiet):
            assert [pool_size(n) for n in (1, cores, cores + 62)] == [1, cores, cores]
        assert capsys.readouterr().err == said


def test_messages_name_flags() -> None:
    """What the API calls its parameters, the command line calls by its flags."""
    error = errors.LimitReachedError("no answer after 1 step. Allow more (max_steps), or less")
    assert explain(error)[1] == "no answer after 1 step. Allow more (--max-steps), or less"
    assert as_flags("allow more (max_tokens)") == "allow more (--max-tokens)"
    assert as_flags("allow more (timeout)") == "allow more (--timeout)"
    assert as_flags("simplify output_type") == "simplify --schema"
    assert as_flags("with more kv_memory, or") == "with more --kv-memory, or"
    assert as_flags("a tool's own timeout and (other)") == "a tool's own timeout and (other)"


def test_help_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every verb's, every benchmark's, and that of the whole."""
    monkeypatch.setenv("COLUMNS", "80")
    for args in HELPS:
        main([*args, "--help"])
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 80, args


def test_wrong_usage_that_a_measurement_finds(capfd: pytest.CaptureFixture[str]) -> None:
    """The head of a table may be there by then; the explanation is still one line, the status 2."""
    assert main(["bench", "-p", "0", "-n", "99999", "-r", "1"]) == Exit.USAGE
    lines = capfd.readouterr().err.splitlines()
    # Limits that were measured on a busy machine are measured again first, with a note.
    assert len([line for line in lines if "measuring again" not in line]) == 1


def test_an_error_is_one_line(triplepoint: Run, tmp_path: Path) -> None:
    """A missing file is one line on stderr and status 3; no traceback."""
    done = triplepoint("replay", "no\n\x1b[2Jne.jsonl")

    assert (done.returncode, done.stdout) == (3, "")
    # A checkout has recorded runs, and names them.
    assert done.stderr.startswith(
        "triplepoint: error: cannot read the trace no \\x1b[2Jne.jsonl: it does not exist"
    )
    assert done.stderr.count("\n") == 1


def test_debug_shows_the_traceback(triplepoint: Run) -> None:
    """With TRIPLEPOINT_DEBUG=1 the error comes with its traceback."""
    done = triplepoint("replay", "none.jsonl", more={"TRIPLEPOINT_DEBUG": "1"})

    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "TraceError" in done.stderr


def test_errors_are_json_for_machines(triplepoint: Run) -> None:
    """With --json the error is an object on stdout too."""
    done = triplepoint("replay", "none.jsonl", "--json")

    assert done.returncode == 3
    assert '"exit": 3' in done.stdout
    assert "does not exist" in done.stderr


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.LimitReachedError("steps"), 4),
        (errors.ContextOverflowError("long"), 4),
        (errors.TargetError("avx9"), 2),
        (errors.GGUFError("magic", field="magic", offset=0), 3),
        (errors.ReplayError("kv"), 3),
        (errors.ToolError("no such folder"), 3),
        (errors.EngineError("x"), 1),
        (FileNotFoundError(2, "No such file", "x.gguf"), 3),
        (ValueError("x"), 1),
    ],
)
def test_each_kind_of_error_has_its_status(error: Exception, status: int) -> None:
    """The status tells a script what kind of thing went wrong."""
    got, message = explain(error)

    assert got == status
    assert message


def test_a_target_of_the_environment_is_named(triplepoint: Run) -> None:
    """Who set it elsewhere finds it; one of the command line is not said to be from there."""
    more = {"TRIPLEPOINT_TARGET": "avx9"}
    assert triplepoint("run", "x", more=more).stderr.endswith("(from TRIPLEPOINT_TARGET)\n")

    said = triplepoint("run", "x", "--target", "avx8", more=more).stderr
    assert "unknown CPU target 'avx8'" in said
    assert "TRIPLEPOINT_TARGET" not in said


@pytest.mark.parametrize(
    "args", [["run", "hi"], ["trace", "ls"], ["use", "nano"], ["doctor", "cache"]]
)
def test_nobody_has_a_home(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A container's user without HOME or an entry in passwd is told what to set."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda user: {}[user])

    assert main(args) == Exit.USAGE
    said = capfd.readouterr().err
    assert "there is no home folder" in said
    assert "set HOME, or XDG_" in said


def test_a_bug_says_that_it_is_one() -> None:
    """An error that is nobody's fault but ours says how to see more."""
    assert explain(ValueError("x"))[1] == ("a bug: ValueError: x (TRIPLEPOINT_DEBUG=1 shows where)")


def test_a_closed_pipe_is_no_traceback(recorded: Path, env: dict[str, str]) -> None:
    """`triplepoint replay … | head -0` ends quietly."""
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "triplepoint", "replay", recorded],
        stdout=writes,
        stderr=subprocess.PIPE,
        env=env,
        text=True,
    )
    os.close(writes)

    assert done.stderr == ""


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("ls qwen", "models ls qwen"),
        ("rm a b -y", "models rm a b -y"),
        ("use nano", "models use nano"),
        ("models --json", "models search --json"),
        ("bench -r 3 --compare -p 5", "bench speed -r 3 --compare llama-cpp -p 5"),
        ("plan", "plan simulate"),
        ("plan search chat --rate 2", "plan simulate search chat --rate 2"),
        ("doctor --measure", "doctor check --measure"),
    ],
)
def test_what_is_short_for_a_command(short: str, whole: str) -> None:
    """Five words are short for a command of `models`; four verbs have a default command."""
    found, expected = (build_parser().parse_args(words.split()) for words in (short, whole))

    assert found == expected


def test_a_question_may_begin_with_dashes() -> None:
    """What has spaces in it is no option."""
    assert build_parser().parse_args(["run", "--dri is what?"]).question == "--dri is what?"


def test_lists_of_numbers() -> None:
    """`-p 36,512` is two prompts."""
    assert numbers("36,512") == [36, 512]


needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def _on_a_full_disk(env: dict[str, str], *args: object) -> tuple[str, int]:
    """Stderr and status of a command whose output goes there."""
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "triplepoint", *map(str, args)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=env, text=True)
    return done.stderr, done.returncode


NO_SPACE = ("triplepoint: error: standard output: No space left on device\n", 3)


@needs_full
@pytest.mark.parametrize("args", [["run", "--help"], ["--version"]])
def test_help_on_a_full_disk(env: dict[str, str], args: list[str]) -> None:
    """argparse says nothing of help that could not be written; `triplepoint` does."""
    assert _on_a_full_disk(env, *args) == NO_SPACE


@pytest.mark.slow
@needs_full
@pytest.mark.parametrize("args", [["trace", "show"], ["replay"], ["trace", "show", "--json"]])
def test_a_full_disk_behind_stdout(recorded: Path, env: dict[str, str], args: list[str]) -> None:
    """`triplepoint … > FILE` on a full disk is one line that says so, and status 3."""
    assert _on_a_full_disk(env, *args, recorded) == NO_SPACE


@pytest.mark.slow
@needs_full
@pytest.mark.parametrize(
    ("args", "status", "answer"),
    [
        (["run", "Which files are here?"], 0, "The folder holds: a.txt\n"),
        (["run", "hi", "-m", "none.gguf"], 3, ""),
    ],
)
def test_a_full_disk_behind_stderr(
    env: dict[str, str], tmp_path: Path, args: list[str], status: int, answer: str
) -> None:
    """`triplepoint … 2> FILE` on a full disk loses what is said beside the answer, no more."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "triplepoint", *args, "--dir", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=full,
            env=env,
            text=True,
        )

    assert (done.stdout, done.returncode) == (answer, status)


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ["trace", "export", "RUN", "--format", "perfetto", "-o", "FILE"],
        ["trace", "export", "RUN", "--format", "csv", "-o", "FILE"],
        ["trace", "view", "RUN", "-o", "FILE"],
        ["trace", "show", "RUN", "--svg", "FILE"],
    ],
    ids=lambda args: " ".join(args[1:2] + args[3:5]),
)
def test_a_file_that_cannot_be_written_is_named(
    triplepoint: Run, recorded: Path, tmp_path: Path, args: list[str]
) -> None:
    """It appears whole or not at all: what stood there stays, and nothing is left beside it."""
    target = tmp_path / "out" / "file.html"
    target.parent.mkdir()
    target.write_text("before")
    names = {"RUN": str(recorded), "FILE": str(target)}
    command = [names.get(arg, arg) for arg in args]
    limit = "import resource as r, runpy, signal, sys; sys.argv[0] = 'triplepoint'; "
    limit += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); r.setrlimit(r.RLIMIT_FSIZE, (9, 9)); "
    limit += "runpy.run_module('triplepoint', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", limit, *command], capture_output=True, text=True, timeout=60
    )

    assert done.stderr == f"triplepoint: error: cannot write {target}: File too large\n"
    assert done.returncode == 3
    assert [path.name for path in target.parent.iterdir()] == ["file.html"]
    assert target.read_text() == "before"
    assert triplepoint(*command).returncode == 0
    assert target.read_text() != "before"


@pytest.mark.parametrize("args", [["run", "hello"], ["chat"]])
def test_a_named_trace_that_cannot_be_written_is_said_first(
    triplepoint: Run, tmp_path: Path, args: list[str]
) -> None:
    """Before a model is looked for, with what is in the way."""
    file = tmp_path / "file"
    file.write_text("no folder")
    done = triplepoint(*args, "--trace", file / "t.jsonl", "-m", tmp_path / "missing.gguf")

    assert done.returncode == 3
    error = f"triplepoint: error: cannot write {file}/t.jsonl: there is no folder {file}\n"
    assert done.stderr == error


def test_the_default_format_of_the_cache() -> None:
    """The first of the formats is the configuration's default, and its words name them all."""
    default, words, *_ = config.KEYS["kv"]
    assert default == KV_FORMATS[0]
    assert re.findall(r'"(.*?)"', words) == [*KV_FORMATS]
