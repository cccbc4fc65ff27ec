"""Named conversations, saved on disk: `--session NAME`, `--continue`.

    STATE/sessions/NAME/conversation.json   messages, the ledger, where questions began
    STATE/sessions/NAME/index.json, *.kv    the KV cache (`engine/session_files.py`)

The conversation is what counts: with it alone everything is as before, only that it has to be read
again. So a KV cache that is damaged, of another format or gone costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import ProcessBound, as_path, user_folder, without_surrogates
from ...errors import AgentError, ConversationError, EngineError
from ...jit.kernels.kvcache import PAGE
from ...traces.append_log import claim
from .. import checked_files
from ..conversation.messages import Message
from ..engine import session_files
from .history import History
from .local_conversation import LocalConversation
from .run_metadata import RunSetup, write_continuation

if TYPE_CHECKING:
    from .agent import Agent

VERSION = 1
CONVERSATION = "conversation.json"
MAX_BYTES = 16 << 30
"""Maximum bytes of all sessions' KV caches; the least recently used are evicted first."""
_CONVERSATION = re.compile(re.escape(CONVERSATION))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class State(History):
    """A conversation as saved on disk."""

    version: int
    model: str
    """SHA-256 of the model file."""
    told: str
    """SHA-256 of the system message, the tools and the template."""
    run: str
    """Identifier of the last run that continued the conversation."""
    workspace: str = ""
    """Workspace of the file tools; empty if none, or saved by a version without this field."""
    model_name: str = ""
    model_path: str = ""
    """The model's file, or the address of its server."""
    attached: dict[str, str] = field(default_factory=dict)
    """Documents attached to the workspace: name to source."""
    pending: list[Message] = field(default_factory=list)
    """Results of the last message's calls that the run ended before appending."""


class SavedConversation(ProcessBound):
    """One saved conversation, locked by this process until it is closed.

    Attributes:
        name, folder: its name and its folder.
    """

    def __init__(self, name: str, folder: Path, lock: int) -> None:
        """Wrap a session folder and its lock's descriptor; use `open_conversation` instead."""
        self.name, self.folder = name, folder
        self._lock = lock

    @property
    def exists(self) -> bool:
        """Return whether there is a conversation to continue."""
        return (self.folder / CONVERSATION).exists()

    def resume(self, agent: Agent[Any]) -> list[str]:
        """Continue this conversation with a new agent.

        Returns notes for the user, one per line; none for a new session.

        Raises:
            AgentError: the agent is not new, the conversation is damaged, or `close` has released
                it.
        """
        _check_agent(agent)
        self._check_open("continue")
        if agent.turn or agent.messages:
            raise AgentError("only an agent without questions so far can continue a session")
        if not self.exists:
            return []
        try:
            state = read_state(self.folder)
        except ValueError as error:
            raise self._refusal(str(error)) from None
        moved = self._moved(agent.setup.workspace, state)
        notes = self._resume(agent, state)
        agent.setup.conversation.pending = list(state.pending)
        if (files := agent.setup.files) is not None:
            notes += files.attach_again(state.attached)
        return [*notes, *([moved] if moved else [])]

    def _moved(self, workspace: str, state: State) -> str:
        """Return a note if the agent's tools use another folder than the saved one, else empty."""
        now = without_surrogates(workspace)
        if not state.workspace or now == state.workspace:
            return ""
        return (
            f"session {self.name} belongs to {state.workspace}, but the tools use {now or 'none'}"
        )

    def _resume(self, agent: Agent[Any], state: State) -> list[str]:
        setup, conversation = agent.setup, agent.setup.conversation
        model = setup.engine.model.sha256
        same = state.model == model and state.told == _fingerprint(setup)
        if isinstance(conversation, LocalConversation) and same and state.ids:
            if not all(0 <= token < conversation.engine.tokenizer.n_vocab for token in state.ids):
                raise self._refusal("has tokens that the model does not have")
            return self._restore(agent, conversation, state)
        conversation.load_history(_with_system(state.messages, setup.config.system), state.turn)
        write_continuation(agent.trace, setup, parent=state.run)
        if not isinstance(conversation, LocalConversation):
            return [f"session {self.name} continues: the whole conversation is sent to the server"]
        what = "another model" if state.model != model else "other tools"
        return [f"session {self.name} was saved with {what}, so it is read again"]

    def _restore(
        self, agent: Agent[Any], conversation: LocalConversation, state: State
    ) -> list[str]:
        """Restore a conversation's tokens and what is saved of their KV cache; return notes."""
        began = time.perf_counter()
        made = conversation.session
        try:
            conversation.session = conversation.engine.load_session(self.folder, made.context)
            loaded = conversation.session
            to, of = loaded.sequence, made.sequence
            to.profile, to.shares, to.namespace = of.profile, of.shares, of.namespace
            loaded.phases.drafting.settings = made.phases.drafting.settings
            why = loaded.restore_error
        except EngineError as error:
            why = str(error)
        conversation.restore(state, why)
        write_continuation(agent.trace, agent.setup, parent=state.run)
        seconds = time.perf_counter() - began
        reused = conversation.session.n_cached
        if reused:
            phase = conversation.session.phases.metrics.adopted("session", seconds)
            phase.turn = agent.turn
            agent.trace.write(phase)
        answers = [
            f"session {self.name} continues: {reused:,} of {len(state.ids):,} tokens from disk in "
            f"{seconds:.2f} s"
        ]
        if why:
            answers.append(f"the rest is recomputed: {why}")
        return answers

    def save(self, agent: Agent[Any]) -> None:
        """Save the conversation as it is now.

        Raises:
            AgentError: it cannot be written, or not all of it; what was saved before is still
                there. Or `close` has released it, so that another process may have it.
        """
        _check_agent(agent)
        self._check_open("save")
        if not agent.messages:
            if agent.turn:  # all was taken back; an agent that was asked nothing changes nothing
                self._forget()
            return
        setup, conversation = agent.setup, agent.setup.conversation
        state = State(
            version=VERSION,
            model=setup.engine.model.sha256,
            told=_fingerprint(setup),
            run=agent.trace.run,
            workspace=agent.setup.workspace,
            model_name=setup.engine.model.name,
            model_path=str(setup.engine.model.path),
            pending=conversation.pending,
            attached={} if setup.files is None else dict(setup.files.attached),
            **vars(conversation.history()),
        )
        try:
            checked_files.make_folder(self.folder)
            checked_files.write_sealed(self.folder / CONVERSATION, _plain(state))
            for path in self.folder.iterdir():
                checked_files.sweep_unfinished(path, _CONVERSATION)
            if isinstance(conversation, LocalConversation):
                cache = conversation.session.sequence.cache
                _make_room(
                    self.folder, -(-conversation.session.n_cached // PAGE) * cache.page_bytes
                )
                conversation.session.save(self.folder)
        except OSError as error:
            where = error.filename or self.folder  # a write names no file
            raise AgentError(
                f"session {self.name} could not be saved: {where}: {error.strerror}"
            ) from error
        except EngineError as error:  # only the KV cache is missing
            raise AgentError(
                f"session {self.name} is saved without the KV cache of this turn, which is "
                f"recomputed when it continues: {error}"
            ) from error

    def _check_open(self, what: str) -> None:
        if self._lock < 0:
            raise AgentError(f"session {self.name} was closed; open it again to {what} it")

    def _forget(self) -> None:
        """Remove the saved files, for a conversation without a question left."""
        try:
            for path in self.folder.iterdir():
                if path.name in (CONVERSATION, session_files.INDEX) or session_files.is_cache(path):
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise AgentError(
                f"session {self.name} could not be saved: {error.filename}: {error.strerror}"
            ) from None

    def close(self) -> None:
        """Release the lock for other processes."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> SavedConversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refusal(self, problem: str) -> AgentError:
        return AgentError(
            f"session {self.name} cannot continue: {self.folder / CONVERSATION} {problem}; start "
            f"another session, or remove the folder {self.folder}"
        )


def _check_agent(agent: object) -> None:
    if not hasattr(agent, "setup"):
        raise AgentError(f"agent must be an Agent, not {agent!r}")


def no_name(name: str) -> str:
    """Return why a session name is invalid; empty where it is valid."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return ""
    return (
        f"{name!r} is not a session name: use up to 64 letters, digits, dots, dashes and "
        "underscores, starting with a letter or digit"
    )


def open_conversation(name: str, root: str | Path | None = None) -> SavedConversation:
    """Open the session of that name for this process only; create it if missing.

    Args:
        name: up to 64 letters, digits and ``. _ -``, starting with a letter or digit.
        root: folder of the sessions; default: one in the user's state folder.

    Raises:
        AgentError: the name is invalid, another process has it open, or it cannot be stored.
    """
    if problem := no_name(name):
        raise AgentError(problem)
    folder = sessions_folder(root) / name
    try:
        checked_files.make_folder(folder)
        lock = _lock_file(folder)
    except OSError as error:
        raise AgentError(
            f"session {name} cannot be opened: {error.filename or folder}: {error.strerror}; "
            + ("set XDG_STATE_HOME to" if root is None else "give root to")
            + " use another folder"
        ) from None
    if not _take(lock, folder):
        os.close(lock)
        raise AgentError(
            f"session {name} is in use by another process, or open in this one already; end that "
            "use, or take another name"
        )
    return SavedConversation(name, folder, lock)


def last_session(root: str | Path | None = None) -> str:
    """Return the name of the session that was saved last.

    Raises:
        ConversationError: there is none.
    """
    found = [(time_of, folder.name) for folder, time_of in saved_folders(sessions_folder(root))]
    if not found:
        raise ConversationError("there is no session to continue; start one with --session NAME")
    return max(found)[1]


def sessions_folder(root: str | Path | None = None) -> Path:
    """Return the folder of saved sessions."""
    if root is not None:
        return as_path(root, "the folder of sessions", AgentError)
    return user_folder("state") / "sessions"


def saved_folders(root: Path) -> Iterator[tuple[Path, float]]:
    """Yield the folders of sessions, and when each was saved."""
    if not root.is_dir():
        return
    for folder in root.iterdir():
        try:
            if not folder.is_symlink() and _NAME.fullmatch(folder.name):
                yield folder, (folder / CONVERSATION).lstat().st_mtime
        except OSError:  # begun and never saved, or removed meanwhile
            continue


def _make_room(keep: Path, coming: int) -> None:
    """Remove the KV caches of the least recently used sessions, beyond `MAX_BYTES`."""
    room = MAX_BYTES - coming
    for folder, _ in sorted(saved_folders(keep.parent), key=lambda one: -one[1]):
        if folder == keep:
            continue
        files = [path for path in folder.iterdir() if session_files.is_cache(path)]
        for path in files:
            with suppress(FileNotFoundError):  # its own process has swept it away
                room -= path.lstat().st_size
        if room < 0:
            with held(folder) as ours:
                for path in files if ours else ():
                    path.unlink(missing_ok=True)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Lock a session for the `with` block; yield whether that succeeded."""
    try:
        lock = _lock_file(folder)  # a copy of a session may lack it
    except OSError:
        yield False
        return
    try:
        yield _take(lock, folder)
    finally:
        os.close(lock)


def _lock_file(folder: Path) -> int:
    """Open a session's lock file, creating it if missing; return its descriptor."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    return os.open(folder / "lock", flags, 0o600)


def _take(lock: int, folder: Path) -> bool:
    """Try to lock the session through its lock file's descriptor; return whether it worked.

    Where the system has no locks, two processes may write; each write is atomic all the same.
    """
    if not claim(lock):
        return False
    try:  # the last owner may have removed the session, and the file with it
        return os.path.samestat(os.fstat(lock), os.lstat(folder / "lock"))
    except OSError:
        return False


def _fingerprint(setup: RunSetup) -> str:
    """Return the SHA-256 of the system message, the tools and the template, as saved in `State`."""
    conversation = setup.conversation
    template = conversation.chat.source if isinstance(conversation, LocalConversation) else ""
    parts = [setup.config.system, setup.tools.schemas(), template]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _with_system(messages: list[Message], system: str) -> list[Message]:
    """Replace the system message of a conversation."""
    rest = messages[1:] if messages and messages[0].role == "system" else messages
    return [Message("system", system), *rest] if system else rest


def _plain(state: State) -> dict[str, Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(State).dump_python(state, mode="json")


def read_state(folder: Path) -> State:
    """Return the conversation that is saved in a folder.

    Raises:
        ValueError: it cannot be read, or is damaged; says why.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        sealed = checked_files.read_sealed(folder / CONVERSATION)
        state = TypeAdapter(State).validate_json(sealed, strict=False)
    except OSError as error:
        raise ValueError(str(error)) from None
    except ValidationError:
        state = None
    if state is None or state.version != VERSION or not state.messages or state.turn < 0:
        raise ValueError("has a format that this version does not read")
    ends = [0, *(span.end for span in state.spans)]
    starts = [*(span.start for span in state.spans), len(state.ids)]
    if ends != starts or any(span.end <= span.start for span in state.spans):
        raise ValueError("has a ledger with gaps")
    if any(not 0 <= mark.tokens <= len(state.ids) for mark, _ in state.marks):
        raise ValueError("has a question outside its tokens")
    return state
