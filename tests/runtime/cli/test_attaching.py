"""Text that is piped in, and files that a question names with @."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.openai_server import calls, openai_server, text

from triplepoint import Agent, RemoteEngine, SettingError, ToolError, Trace, TriplepointError
from triplepoint.runtime.cli import attaching
from triplepoint.runtime.cli.attaching import question_of, with_attachments
from triplepoint.runtime.cli.output import Output

Run = Callable[..., "subprocess.CompletedProcess[str]"]
LOG = "INFO start\nERROR disk: no space left on device\nINFO stop\n"


@pytest.fixture
def agent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent whose workspace is a folder, and a file beside it where we are."""
    (folder / "sub dir").mkdir()
    (folder / "sub dir" / "my file.txt").write_text("x\n")
    monkeypatch.chdir(folder.parent)
    (folder.parent / "outside.log").write_text(LOG)
    return Agent(RemoteEngine("http://localhost:1/v1", model="m"), workspace=folder, trace=False)


def asked(question: str, agent: Agent) -> str:
    return with_attachments(question, agent, Output(), piped=False)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is in @app.log?", "What is in app.log?"),
        ("@app.log", "app.log"),
        ("Compare (@app.log, @notes.txt).", "Compare (app.log, notes.txt)."),
        ("Is @./app.log's error new?", "Is @./app.log's error new?"),
        ('See @"sub dir/my file.txt".', "See sub dir/my file.txt."),
        ("What is in @files/app.log?", "What is in app.log?"),
        ('Look into @"sub dir".', "Look into sub dir/."),
        ("Mail me@app.log, please", "Mail me@app.log, please"),
        ("What does @@app.log mean?", "What does @app.log mean?"),
        ("What does @dataclass do?", "What does @dataclass do?"),
        ("What is @missing/file.txt?", "What is @missing/file.txt?"),
        ("An @ alone, and @@", "An @ alone, and @"),
        ("@\0 @" + "x" * 5000, "@\0 @" + "x" * 5000),
    ],
)
def test_a_file_of_the_folder_is_named(agent: Agent, question: str, expected: str) -> None:
    """By its path in the workspace; what names no file, or is part of a word, is left as it is."""
    assert asked(question, agent) == expected
    assert agent.setup.files is not None
    assert not agent.setup.files.attached


def test_a_name_that_looks_the_same(agent: Agent, folder: Path) -> None:
    """A letter with its accent may be one character here and two there."""
    (folder / "re\u0301sume\u0301.txt").write_text("x\n")
    assert asked("What is in @r\u00e9sum\u00e9.txt?", agent) == "What is in re\u0301sume\u0301.txt?"


def test_a_file_elsewhere_is_attached(agent: Agent, folder: Path) -> None:
    """Under its own name, once however often it is named; the folder stays as it is."""
    before = sorted(folder.iterdir())
    (folder / "link").symlink_to(folder.parent / "outside.log")

    assert asked("What failed in @outside.log?", agent) == "What failed in outside.log?"
    path = folder.parent / "outside.log"
    assert (
        asked(f"And in @{path}, and @files/app.log?", agent) == "And in outside.log, and app.log?"
    )
    with pytest.raises(ToolError, match=r"link that leads out of .*outside\.log; name that file"):
        asked("@link", agent)  # a folder may be anybody's, and so may what its links lead to
    assert agent.setup.files is not None
    assert agent.setup.files.attached == {"outside.log": str(path)}
    (folder / "link").unlink()
    assert sorted(folder.iterdir()) == before


def test_no_such_user(agent: Agent, folder: Path) -> None:
    """`~bob` is a text where there is no bob, also if the folder has a file of such a name."""
    assert asked("ask @~nobody-here about it", agent) == "ask @~nobody-here about it"
    (folder / "~tilde").write_text("x")
    assert asked("what is in @~tilde?", agent) == "what is in ~tilde?"


def test_what_cannot_be_attached_is_named(agent: Agent, folder: Path) -> None:
    """A folder elsewhere, a FIFO and what is not text are errors, not waits and not silence."""
    os.mkfifo(folder.parent / "fifo")
    (folder.parent / "picture.png").write_bytes(b"\x89PNG\0\0")
    for name, says in (
        ("..", "is a folder outside of"),
        ("fifo", "is not a regular file"),
        ("picture.png", "is not text"),
    ):
        with pytest.raises(ToolError, match=f"@{folder.parent / name}".replace("..", r"\.\.")) as e:
            asked(f"What is @{folder.parent / name}", agent)
        assert says in str(e.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
@pytest.mark.parametrize("path", ["closed/a.log", "{outside}/a.log"])
def test_a_folder_that_may_not_be_entered(agent: Agent, folder: Path, path: str) -> None:
    """A file in it is not taken for a word of the question."""
    (folder / "closed").mkdir(mode=0)
    (folder.parent / "closed").mkdir(mode=0)
    path = path.format(outside=folder.parent / "closed")
    with pytest.raises(ToolError, match=f"^cannot read @{path}: Permission denied$"):
        asked(f"What does @{path}?", agent)
    assert asked("What is @dataclass?", agent) == "What is @dataclass?"


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What failed?", "What failed in stdin.txt?"),
        ("What failed in stdin.txt?", "What failed in stdin.txt?"),
        ("What failed in @-?", "What failed in stdin.txt?"),
        ("Summarize it", "Summarize it\n\nLook in stdin.txt."),
        ("What failed? And when?", "What failed? And when?\n\nLook in stdin.txt."),
        ("Is @app.log like this?", "Is app.log like this?\n\nLook in stdin.txt."),
    ],
)
def test_the_model_is_told_the_name(
    agent: Agent, question: str, expected: str, pipe: Callable[..., None]
) -> None:
    """In the words of the question where it is one; else below it."""
    pipe(LOG)

    assert with_attachments(question, agent, Output(), piped=True) == expected
    assert agent.setup.files is not None
    assert agent.setup.files.attached == {"stdin.txt": "standard input"}
    with agent.setup.files.open("stdin.txt") as file:
        assert file.read() == LOG.encode()


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Lets stdin be a pipe that holds a text and has ended; or another stream."""
    opened: list[Any] = []

    def put(data: str | bytes = b"", stream: Any = None) -> None:
        if stream is None:
            read, write = os.pipe()
            os.write(write, data.encode() if isinstance(data, str) else data)
            os.close(write)
            stream = os.fdopen(read)
        opened.append(stream)
        monkeypatch.setattr(sys, "stdin", stream)

    yield put
    for stream in opened:
        if stream is not None:
            stream.close()


def test_a_name_that_was_used_is_not_used_again(agent: Agent, pipe: Any, folder: Path) -> None:
    """Neither that of a file nor that of a document that the conversation has read before."""
    (folder / "stdin.txt").write_text("the folder's own\n")
    agent.load_history([("What is in stdin-2.txt?", "A log.")])
    pipe(LOG)

    assert with_attachments("What now?", agent, Output(), piped=True) == "What now in stdin-3.txt?"


def test_nothing_piped_is_nothing(agent: Agent, pipe: Any) -> None:
    """An ended pipe without text, /dev/null, a terminal's place taken by nothing."""
    with open(os.devnull) as null:
        pipe(b"")
        assert with_attachments("What?", agent, Output(), piped=True) == "What?"
        pipe(b" \n")
        assert with_attachments("What?", agent, Output(), piped=True) == "What?"
        pipe(stream=null)
        assert with_attachments("What?", agent, Output(), piped=True) == "What?"
        with pytest.raises(SettingError, match="@- names standard input, but nothing was piped"):
            with_attachments("What is @-?", agent, Output(), piped=True)


def test_what_is_piped_must_be_text(agent: Agent, pipe: Any) -> None:
    """A picture is refused before the model is asked about it."""
    pipe(b"\x89PNG\0\0")
    with pytest.raises(ToolError, match="stdin is not text"):
        with_attachments("What?", agent, Output(), piped=True)


def test_endless_text_ends(
    agent: Agent, pipe: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As much is kept as a tool reads of one file, and that is said."""
    monkeypatch.setattr(attaching, "BUDGET", 1 << 20)
    with subprocess.Popen(["yes", "again"], stdout=subprocess.PIPE, text=True) as endless:
        pipe(stream=endless.stdout)
        assert with_attachments("What?", agent, Output(), piped=True) == "What in stdin.txt?"
        endless.kill()

    assert capsys.readouterr().err == "triplepoint: stdin was cut after 1 MiB\n"
    assert agent.setup.files is not None
    assert agent.setup.files.stat("stdin.txt").st_size == (1 << 20) + 1


def test_an_open_pipe_is_waited_for(
    agent: Agent, pipe: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slow command loses nothing, and who waits is told what for."""
    monkeypatch.setattr(attaching, "NOTE_AFTER_S", 0.01)
    slow = ["sh", "-c", "sleep 0.5; echo ERROR late"]
    with subprocess.Popen(slow, stdout=subprocess.PIPE, text=True) as process:
        pipe(stream=process.stdout)
        assert with_attachments("What?", agent, Output(), piped=True) == "What in stdin.txt?"

    assert "waiting for stdin; add </dev/null to skip it" in capsys.readouterr().err


def test_an_open_socket_is_not(
    agent: Agent, pipe: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs give a socket as stdin and leave it open; a shell never does."""
    monkeypatch.setattr(attaching, "SOCKET_S", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pipe(stream=os.fdopen(os.dup(ours.fileno())))
        assert with_attachments("What?", agent, Output(), piped=True) == "What?"
        assert "no input on stdin for 0.05 s" in capsys.readouterr().err
        theirs.sendall(LOG.encode())
        theirs.close()
        assert with_attachments("What?", agent, Output(), piped=True) == "What in stdin.txt?"


def test_empty_questions(pipe: Any) -> None:
    """Refused with what to do, on the command line and from stdin."""
    for argument in ("", " \n"):
        with pytest.raises(SettingError, match="the question is empty; give one: triplepoint run"):
            question_of(argument)
    pipe(b"\n")
    with pytest.raises(SettingError, match="stdin, which is empty"):
        question_of("-")
    pipe(b"Hello?\n")
    assert question_of("-") == "Hello?"


def test_an_empty_pipe_is_told(agent: Any, pipe: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What should have written may have failed: the answer is then of something else."""
    pipe(b"")

    assert with_attachments("What failed?", agent, Output(), piped=True) == "What failed?"
    assert "stdin is empty" in capsys.readouterr().err


# --- whole runs


def test_a_piped_log_is_asked_about(triplepoint: Run, nano: Path, tmp_path: Path) -> None:
    """The answer is of the log that was piped in; the run verifies, and nothing is written."""
    work = tmp_path / "empty"
    work.mkdir()
    trace = tmp_path / "t.jsonl"

    done = triplepoint("run", "What's the error?", "--dir", work, "--trace", trace, stdin=LOG)

    assert done.returncode == 0, done.stderr
    assert "no space left on device" in done.stdout
    assert '> search(pattern="error|' in done.stderr
    assert "stdin.txt:2:" in done.stderr
    assert list(work.iterdir()) == []
    (turn,) = Trace.load(trace).turns
    user = next(m for m in turn.messages if m.role == "user")
    assert user.content == "What's the error in stdin.txt?"
    assert user.attached == {"stdin.txt": "standard input"}
    verified = triplepoint("replay", trace, "--verify")
    assert verified.returncode == 0, verified.stdout
    anew = triplepoint("replay", trace, "--from", "1")
    assert "stdin.txt was attached from standard input, which can no longer be read" in anew.stderr


@pytest.mark.slow
def test_a_file_elsewhere_is_there_for_a_branch(
    triplepoint: Run, nano: Path, tmp_path: Path
) -> None:
    """What has a path is attached again when a recorded run goes on."""
    work, trace = tmp_path / "empty", tmp_path / "t.jsonl"
    work.mkdir()
    (tmp_path / "far.log").write_text(LOG)
    args = ["--dir", work, "--trace", trace]
    done = triplepoint("run", "What's the error in @far.log?", *args)
    assert "no space left on device" in done.stdout

    anew = triplepoint("replay", trace, "--from", "1")

    assert "no space left on device" in anew.stdout
    assert "is gone" not in anew.stderr
    assert "far.log:2:" in anew.stderr


@pytest.mark.slow
def test_what_is_said_before_a_call_is_no_answer(env: dict[str, str], folder: Path) -> None:
    """In a pipe it goes to stderr; nothing but the last words are on stdout."""
    first = [*text("Let me look.")[:-1], *calls(("list_dir", {}))]
    with openai_server(first, text("Two ", "files.")) as server:
        command = [sys.executable, "-m", "triplepoint", "run", "What?", "-m", server.url]
        done = subprocess.run(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    assert done.stdout == "Two files.\n"
    assert done.stderr.startswith("Let me look.\n> list_dir()\n")


@pytest.mark.slow
def test_bytes_that_are_no_text(env: dict[str, str], nano: Path) -> None:
    """On stdin they become U+FFFD: neither a question nor a chat ends on them."""
    env |= {"PYTHONIOENCODING": "utf-8:strict"}
    for arguments in (["run", "-", "-m", nano], ["chat", "-m", nano]):
        command = [sys.executable, "-m", "triplepoint", *map(str, arguments)]
        done = subprocess.run(
            command, input=b"caf\xe9?\n", capture_output=True, env=env, timeout=60
        )
        assert b"a bug" not in done.stderr, done.stderr
        assert done.returncode != 1


@pytest.mark.slow
def test_closed_streams(env: dict[str, str], nano: Path, folder: Path) -> None:
    """`<&-` is as nothing piped in; where something must be read, that is said, with status 2."""

    def closed(arguments: str, streams: str) -> subprocess.CompletedProcess[str]:
        line = f'"{sys.executable}" -m triplepoint {arguments} {streams}'
        return subprocess.run(
            ["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=100
        )

    done = closed("run 'Which files are here?' -q", "<&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert "app.log" in done.stdout
    for arguments, says in (("chat", "no questions: stdin is"), ("run -", "the question is empty")):
        for streams in ("<&-", "</dev/null"):
            done = closed(arguments, streams)
            assert (done.returncode, done.stdout) == (2, "")
            assert says in done.stderr
            assert done.stderr.count("\n") == 1
    done = closed("run 'Which files are here?'", ">&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_errors_of_a_run_have_its_kind(agent: Agent) -> None:
    """Whatever cannot be attached is one of ours, so that it is one line with a status."""
    with pytest.raises(TriplepointError):
        asked("What is in @/?", agent)
