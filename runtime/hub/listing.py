"""What a repository on the Hub holds, and clear words when it cannot be told."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import NoReturn, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ...errors import ModelError
from ...traces.text import printable
from .http import Attempts, Client, Reply, TransientError
from .names import ModelName, is_repo
from .variants import RepoFile

_MAX_ANSWER = 1 << 26  # bytes; 10,000 files take some 4 MB
_TRIES = 3  # of the listing
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_T = TypeVar("_T")


class _Lfs(BaseModel):
    sha256: str | None = None
    size: int | None = Field(None, ge=0)


class _File(BaseModel):
    rfilename: str
    size: int | None = Field(None, ge=0)
    blobId: str | None = None
    lfs: _Lfs | None = None


class _Gguf(BaseModel):
    architecture: str | None = None


class _Repository(BaseModel):
    """The fields that are used of an answer of ``/api/models/…``."""

    sha: str
    siblings: list[_File] = []
    gguf: _Gguf | None = None


class _Found(BaseModel):
    id: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The GGUF files of a repository at one commit.

    Attributes:
        commit: 40 hex digits.
        files: paths have been checked: they stay inside the repository.
        architecture: as the Hub read it from one of the files, None if it did not.
    """

    commit: str
    files: tuple[RepoFile, ...]
    architecture: str | None


def list_repository(client: Client, name: ModelName, note: Callable[[str], None]) -> Listing:
    """Ask what the repository of `name` holds.

    Raises:
        ModelError: it does not exist, must not be read, or the endpoint does not answer.
    """
    path = f"/api/models/{name.repo}/revision/{quote(name.revision, safe='')}?blobs=true"
    body = _ask(client, path, name, note)
    try:
        answer = _Repository.model_validate_json(body)
    except ValidationError as error:
        raise _no_hub(client, error) from error
    if not _COMMIT.fullmatch(answer.sha):
        raise _no_hub(client, f"{answer.sha[:50]!r} is no commit")
    files = tuple(_checked(f) for f in answer.siblings if f.rfilename.lower().endswith(".gguf"))
    if not files:
        hint = _hint(client, name.repo)
        raise ModelError(f"{name.repo} has no GGUF file{hint}")
    architecture = answer.gguf.architecture if answer.gguf else None
    return Listing(answer.sha, files, architecture)


def explain(client: Client, name: ModelName, reply: Reply, file: str | None = None) -> NoReturn:
    """Raise the ModelError that says why the Hub refuses.

    A repository that is private and one that does not exist look alike to who may not see it.
    """
    code, status = reply.headers.get("x-error-code", ""), reply.status
    words = printable(reply.headers.get("x-error-message", "")[:200])
    token, endpoint = client.settings.token, client.settings.endpoint
    if code == "GatedRepo":
        if token is None:
            how = "accept its terms there, then set HF_TOKEN to a token of your account"
        else:
            how = "the token's account has no access yet; ask for it there"
        raise ModelError(f"{endpoint}/{name.repo} is gated: {how}")
    if status == 401 and token is not None and code != "RepoNotFound":
        raise ModelError(f"{endpoint} does not accept the token; renew HF_TOKEN")
    if code == "RevisionNotFound":
        raise ModelError(f"{name.repo} has no branch, tag or commit {name.revision!r}")
    if file is not None and status == 404:
        raise ModelError(f"{name.repo} has no file {file!r} any more; pull again")
    if status in (401, 404):
        hint = _hint(client, name.repo)
        private = " (it may be private: then set HF_TOKEN)" if token is None else ""
        host = endpoint.partition("//")[2]
        raise ModelError(f"there is no model {name.repo} on {host}{private}{hint}")
    raise ModelError(f"{reply.url} answers {status}{': ' if words else ''}{words}")


def _ask(client: Client, path: str, name: ModelName, note: Callable[[str], None]) -> bytes:
    # Somebody waits for the first word: a network that is not there should be said in seconds.
    patience = replace(client.patience, tries=min(_TRIES, client.patience.tries))
    attempts = Attempts(f"cannot ask {client.settings.endpoint} for {name}", patience, note)
    while True:
        try:
            with client.get(path) as reply:
                if reply.status != 200:
                    explain(client, name, reply)
                return reply.body(_MAX_ANSWER)
        except TransientError as error:
            attempts.failed(error)


def _hint(client: Client, repo: str) -> str:
    """Repositories with GGUF files and a name near to `repo`, as the end of a message, or nothing.

    First those of the same organisation (a slip of the keyboard), then those of any whose name has
    this one in it (the right name without the -GGUF of those who convert).
    """
    author, _, name = repo.partition("/")
    others = [one for one in _search(client, author=author, limit=500) if one != repo]
    near = get_close_matches(repo, others, 3, 0.75)
    near = near or [one for one in _search(client, search=name, limit=4) if one != repo][:3]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _search(client: Client, **query: str | int) -> list[str]:
    path = "/api/models?" + urlencode({**query, "filter": "gguf", "sort": "downloads"})
    try:
        with client.get(path) as reply:
            if reply.status != 200:
                return []
            found = TypeAdapter(list[_Found]).validate_json(reply.body(1 << 22))
    except (TransientError, ModelError, ValidationError):  # it is only for a hint
        return []
    return [one.id for one in found if is_repo(one.id)]


def _checked(file: _File) -> RepoFile:
    """The file, unless its path leads out of the folder that it will lie in."""
    path = file.rfilename
    parts = path.split("/")
    unsafe = any(part in ("", ".", "..") or part.endswith(".lock") for part in parts)
    if unsafe or re.search(r"[\x00-\x1f\x7f\\:]", path) or len(path) > 1000:
        raise ModelError(f"the repository lists a file with an unsafe name: {path[:100]!r}")
    size = file.lfs.size if file.lfs and file.lfs.size is not None else file.size
    digest = (file.lfs.sha256 if file.lfs else file.blobId) or ""
    if size is None or not _DIGEST.fullmatch(digest):
        raise ModelError(f"the endpoint gives no size or hash for {path}; it cannot be checked")
    return RepoFile(path, size, digest)


def _no_hub(client: Client, why: object) -> ModelError:
    text = str(why).splitlines()[0]
    return ModelError(f"{client.settings.endpoint} does not answer as a Hub does: {text}")
