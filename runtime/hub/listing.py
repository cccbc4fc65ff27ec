"""The contents of a repository on the Hub, and clear errors when it cannot be listed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from ...errors import ModelError
from ...traces.sanitize import printable
from .names import ModelName, is_repo
from .transport import Hub, RefusedError, Retrier, TransientError
from .variants import RepoFile

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

_TRIES = 3  # of the listing
_MAX_SIZE = 1 << 63  # bytes of a file, as systems count them
_LONGEST_NAME = 255  # bytes that file systems take
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


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


def list_repository(hub: Hub, name: ModelName, note: Callable[[str], None]) -> Listing:
    """List the repository of `name`.

    Raises:
        ModelError: it does not exist, must not be read, or the endpoint does not answer.
    """
    found = _request(hub, name, note)
    if not (isinstance(found.sha, str) and _COMMIT.fullmatch(found.sha)):
        raise ModelError(
            f"{hub.settings.address} does not answer like a Hub: {str(found.sha)[:50]!r} is not "
            "a commit"
        )
    siblings = [f for f in found.siblings or () if str(f.rfilename).lower().endswith(".gguf")]
    files = tuple(_checked(file) for file in siblings)
    if not files:
        raise ModelError(f"{name.repo} has no GGUF file{_hint(hub, name.repo)}")
    architecture = found.gguf.get("architecture") if isinstance(found.gguf, dict) else None
    return Listing(found.sha, files, str(architecture) if architecture else None)


def explain(hub: Hub, name: ModelName, refused: RefusedError, file: str | None = None) -> NoReturn:
    """Raise a ModelError that explains the Hub's refusal.

    A repository that is private and one that does not exist look alike to who may not see it.
    """
    code, status = refused.headers.get("x-error-code", ""), refused.status
    words = printable(refused.headers.get("x-error-message", "")[:200])
    token, endpoint = hub.settings.token, hub.settings.address
    if code == "GatedRepo":
        if token is None:
            how = "accept its terms there, then set HF_TOKEN to your token"
        else:
            how = "the token's account has no access yet; ask for it there"
        raise ModelError(f"{endpoint}/{name.repo} is gated: {how}")
    if status == 401 and token is not None and code != "RepoNotFound":
        raise ModelError(f"{endpoint} does not accept the token; renew HF_TOKEN")
    if code == "RevisionNotFound":
        raise ModelError(f"{name.repo} has no branch, tag or commit {name.revision!r}")
    if file is not None and status == 404:
        raise ModelError(f"{name.repo} no longer has the file {file!r}; pull again")
    if status in (401, 404):
        hint = _hint(hub, name.repo)
        private = " (it may be private: then set HF_TOKEN)" if token is None else ""
        host = endpoint.partition("//")[2]
        raise ModelError(f"there is no model {name.repo} on {host}{private}{hint}")
    raise ModelError(f"{refused}{': ' if words else ''}{words}")


def _request(hub: Hub, name: ModelName, note: Callable[[str], None]) -> ModelInfo:
    # Somebody waits for the first word: a network that is not there should be said in seconds.
    patience = replace(hub.patience, tries=min(_TRIES, hub.patience.tries))
    attempts = Retrier(f"cannot ask {hub.settings.address} for {name}", patience, note)
    while True:
        try:
            return hub.model(name)
        except RefusedError as error:
            explain(hub, name, error)
        except TransientError as error:
            attempts.failed(error)


def _hint(hub: Hub, repo: str) -> str:
    """Suggest repositories with GGUF files and a name like `repo`, for a message, or nothing.

    First those of the same organization (a slip of the keyboard), then those of any whose name has
    this one in it (the right name without the -GGUF of those who convert).
    """
    author, _, name = repo.partition("/")
    others = _search(hub, repo, 500, author=author)
    near = get_close_matches(repo, others, 3, 0.75) or _search(hub, repo, 4, search=name)[:3]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _search(hub: Hub, repo: str, limit: int, **query: str) -> list[str]:
    """Search matching repositories except `repo`; none where the Hub does not answer."""
    try:
        found = hub.repositories(limit, **query)
    except (TransientError, RefusedError, ModelError):  # it is only for a hint
        return []
    return [one for one in found if is_repo(one) and one != repo]


def _checked(file: RepoSibling) -> RepoFile:
    """Return the file, unless its path escapes its target folder."""
    path = str(file.rfilename)
    parts = path.split("/")
    unsafe = any(part in ("", ".", "..") or part.endswith(".lock") for part in parts)
    if unsafe or re.search(r"[\x00-\x1f\x7f\\:\ud800-\udfff]", path) or len(path) > 1000:
        raise ModelError(f"the repository lists a file with an unsafe name: {path[:100]!r}")
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise ModelError(
            f"the repository lists a file whose name is too long for a disk: {path[:100]!r}…; "
            "the repository cannot be pulled until the file is renamed there"
        )
    size = file.lfs.size if file.lfs else file.size
    digest = (file.lfs.sha256 if file.lfs else file.blob_id) or ""
    if not (isinstance(size, int) and 0 <= size < _MAX_SIZE and _DIGEST.fullmatch(str(digest))):
        raise ModelError(f"the endpoint gives no size or hash for {path}, so it cannot be verified")
    return RepoFile(path, size, digest)
