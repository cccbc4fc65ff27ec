"""The cache of models that all Hugging Face tools share.

    models--Qwen--Qwen3-4B-GGUF/
        blobs/<hash>                  contents; <hash> is that of the file
        refs/main                     the commit that a branch or tag stood at when it was pulled
        snapshots/<commit>/<path>     links into blobs
    .locks/models--…/<hash>.lock

A blob of ours that is not whole is ``<hash>.triplepoint.incomplete``: other tools write theirs in
ways that cannot be taken up again, so the name is not shared.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...arguments import read_own
from ...errors import ModelError
from ..files import make_folder, write_file
from .names import is_repo
from .variants import RepoFile

PREFIX = "models--"
PART = ".triplepoint.incomplete"
_FILE, _FOLDER = 0o644, 0o755  # the cache is shared: others may read it, and never write there
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Models; backups need not keep them.\n"


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A GGUF file of a snapshot.

    Attributes:
        path: in the repository.
        local_path: on this disk; a link as a rule.
        blob: target of the link; `local_path` itself where there are no links.
        size: bytes.
        digest: the hash that the blob's name says it has, None without a blob.
        used: when it was last opened, in seconds since 1970.
    """

    path: str
    local_path: Path
    blob: Path
    size: int
    digest: str | None
    used: float

    @property
    def file(self) -> RepoFile:
        """The file as a `RepoFile` of its repository."""
        return RepoFile(self.path, self.size, self.digest)


class CachedRepo:
    """The folder of one repository in the cache; it need not exist."""

    def __init__(self, cache: Path, repo: str) -> None:
        self.cache, self.repo = cache, repo
        self.folder = cache / (PREFIX + repo.replace("/", "--"))
        self.blobs, self.snapshots = self.folder / "blobs", self.folder / "snapshots"

    def commit(self, revision: str) -> str | None:
        """Return the commit of a branch, tag, or (shortened) commit; None if it is not cached."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = read_own(self.folder / "refs" / revision).decode().strip()
            if _COMMIT.fullmatch(text):
                return text
        found = [c for c in self.commits() if len(revision) >= 7 and c.startswith(revision)]
        return found[0] if len(found) == 1 else None

    def commits(self) -> list[str]:
        """List the cached commits that have files, the newest first."""
        try:
            found = [e for e in os.scandir(self.snapshots) if e.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        times: dict[str, float] = {}
        for entry in found:
            with contextlib.suppress(OSError):  # removed by another process just now
                times[entry.name] = entry.stat().st_mtime
        return sorted(times, key=lambda name: times[name], reverse=True)

    def files(self, commit: str) -> list[CachedFile]:
        """List the complete GGUF files of a commit."""
        found = []
        root = self.snapshots / commit
        for path in sorted(root.rglob("*")):
            if path.name.lower().endswith(".gguf") and not path.is_dir():
                with contextlib.suppress(OSError):  # a link to a blob that is gone
                    found.append(self._cached(root, path))
        return found

    def _cached(self, root: Path, local_path: Path) -> CachedFile:
        # One step only: a blob may itself be a link into a store that repositories share.
        blob = self._target(local_path)
        status = local_path.stat()
        digest = blob.name if blob != local_path and _DIGEST.fullmatch(blob.name) else None
        path = local_path.relative_to(root).as_posix()
        used = max(status.st_atime, status.st_mtime)
        return CachedFile(path, local_path, blob, status.st_size, digest, used)

    def _target(self, local_path: Path) -> Path:
        """Return the blob that a snapshot's link leads to; the path itself if there is none."""
        target = target_of(local_path)
        ours = target is not None and target.parent == Path(os.path.normpath(self.blobs))
        return target if target is not None and ours else local_path

    def blob(self, digest: str) -> Path:
        """Return the path of the contents with this hash, existing or not."""
        assert _DIGEST.fullmatch(digest), digest
        return self.blobs / digest

    def part(self, digest: str) -> Path:
        """Return the path of the contents with this hash while incomplete."""
        return self.blobs / (self.blob(digest).name + PART)

    def parts(self) -> list[Path]:
        """List the incomplete blobs of our own downloads."""
        return sorted(self.blobs.glob(f"*{PART}"))

    def unfinished(self) -> int:
        """Return the total bytes of our incomplete blobs."""
        total = 0
        for part in self.parts():
            with contextlib.suppress(OSError):  # finished by another process just now
                total += part.stat().st_size
        return total

    @contextlib.contextmanager
    def lock(self, digest: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Lock the blob with this hash against writes and removal by other processes.

        `waiting` is called if another process holds the lock, which is that of `huggingface_hub`.
        """
        from filelock import FileLock, Timeout

        path = self.cache / ".locks" / self.folder.name / f"{digest}.lock"
        make_folder(path.parent, _FOLDER)
        # Group-writable as other tools make it: who shares the cache waits too.
        lock = FileLock(path, mode=0o664)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def make(self) -> None:
        """Create the folders of the repository, and a ``CACHEDIR.TAG`` that backups respect."""
        make_folder(self.blobs, _FOLDER)
        tag = self.cache / "CACHEDIR.TAG"
        with contextlib.suppress(OSError):
            if not tag.exists():
                write_file(tag, _TAG, _FILE)

    def set_ref(self, revision: str, commit: str) -> None:
        """Record the commit of a branch or tag."""
        if revision == commit:
            return
        refs = self.folder / "refs"
        target = refs / revision
        # A repository has no branch `a` beside `a/b`: what is in the way is of the past.
        for above in target.relative_to(refs).parents:
            if (refs / above).is_file():
                (refs / above).unlink(missing_ok=True)
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        write_file(target, commit, _FILE)

    def link(self, commit: str, path: str, digest: str, *, symlinks: bool) -> Path:
        """Link the blob with this hash as `path` of the snapshot; return its path."""
        shown, blob = self.snapshots / commit / path, self.blob(digest)
        if os.path.normpath(shown) != str(shown):
            raise ModelError(f"{path!r} does not stay inside its repository")
        if self._target(shown) == blob or (shown.exists() and not blob.exists()):
            return shown  # is there already: as a link, or where there are no links as itself
        make_folder(shown.parent, _FOLDER)
        temporary = shown.with_name(f".{uuid.uuid4().hex[:8]}.tmp")
        try:
            if not symlinks:
                raise OSError("not wanted")
            os.symlink(os.path.relpath(blob, shown.parent), temporary)
        except OSError:  # without links the file itself moves there, as other tools do it
            shutil.copyfile(blob, temporary) if blob.is_symlink() else os.replace(blob, temporary)
        os.replace(temporary, shown)
        return shown


def target_of(path: Path) -> Path | None:
    """Return the target of a link, without following further links; None if `path` is no link."""
    if not path.is_symlink():
        return None
    return Path(os.path.normpath(path.parent / os.readlink(path)))


@contextlib.contextmanager
def as_model_error(what: str, cache: Path) -> Iterator[None]:
    """Convert OSError to a ModelError that names what was attempted."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise ModelError(
            f"{what}: {where}{error.strerror or error}; the cache is {cache}; set HF_HUB_CACHE "
            "to use another"
        ) from error


def cached_repos(cache: Path) -> Iterator[CachedRepo]:
    """List all repositories of models in the cache, by name."""
    try:
        names = sorted(entry.name for entry in os.scandir(cache) if entry.is_dir())
    except OSError:
        return
    for name in names:
        repo = name.removeprefix(PREFIX).replace("--", "/", 1)
        if name.startswith(PREFIX) and is_repo(repo):
            yield CachedRepo(cache, repo)
