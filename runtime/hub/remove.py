"""Remove models from the cache: links first, then unreferenced blobs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from .cache import CachedFile, CachedRepo, as_model_error, target_of
from .find import Found
from .names import MAIN

_STORE = "blobs"  # of the cache itself: contents that repositories share, of huggingface_hub ≥ 2
_STORED = re.compile(r"[0-9a-f]{64}")


def remove(
    repo: CachedRepo,
    models: Sequence[Found],
    *,
    unfinished: bool,
    note: Callable[[str], None] | None = None,
) -> int:
    """Remove these models of `repo`; return the bytes freed.

    Older states of the same files go too, unless the models are those of a certain commit, branch
    or tag. Nothing outside of the cache is touched: links that lead elsewhere go, what they lead to
    stays.

    Args:
        repo: the repository's folder.
        models: what to remove.
        unfinished: whether unfinished downloads of the repository go too.
        note: called if another process is pulling, whose end is waited for.
    """

    def waiting() -> None:
        if note is not None:
            note(f"waiting for another process that is pulling a file of {repo.repo}")

    freed = 0
    with as_model_error(f"cannot remove {repo.repo}", repo.cache):
        for one in models:
            doomed = {file.path for file in one.cached}
            commits = repo.commits() if one.name.revision == MAIN else [one.commit]
            for file in (file for commit in commits for file in repo.files(commit)):
                if file.path in doomed:
                    freed += _remove_file(repo, file, waiting)
        for part in repo.parts() if unfinished else []:
            digest = part.name.partition(".")[0]
            with repo.lock(digest, waiting), contextlib.suppress(FileNotFoundError):
                freed += part.stat().st_size
                part.unlink()
        _tidy(repo)
    return freed


def _remove_file(repo: CachedRepo, file: CachedFile, waiting: Callable[[], None]) -> int:
    """Remove a link and, if it was the last one to it, its blob."""
    if file.digest is None:  # the file itself, or a link that leads out of the cache
        size = 0 if file.local_path.is_symlink() else file.size
        file.local_path.unlink()
        return size
    with repo.lock(file.digest, waiting):
        file.local_path.unlink()
        if _is_needed(repo, file.blob) or not _is_inside(repo, file.blob):
            return 0
        stored = target_of(file.blob)
        file.blob.unlink(missing_ok=True)
        return file.size if stored is None else _remove_stored(repo.cache, stored)


def _is_needed(repo: CachedRepo, blob: Path) -> bool:
    """Return whether a link of any snapshot still leads to the blob."""
    for folder, _, names in os.walk(repo.snapshots):
        for name in names:
            if target_of(Path(folder) / name) == Path(os.path.normpath(blob)):
                return True
    return False


def _is_inside(repo: CachedRepo, blob: Path) -> bool:
    """Return whether the blob is in the repository's own folder, whatever links lead there."""
    return blob.parent.resolve() == repo.folder.resolve() / "blobs"


def _remove_stored(cache: Path, stored: Path) -> int:
    """Remove a file of the store that repositories share, if none of them links to it any more."""
    store = Path(os.path.normpath(cache / _STORE))
    if stored.parent.parent != store or not _STORED.fullmatch(stored.name):
        return 0
    if store.is_symlink() or stored.parent.is_symlink() or stored.is_symlink():
        return 0
    if any(target_of(blob) == stored for blob in cache.glob("*--*/blobs/*")):
        return 0
    with contextlib.suppress(FileNotFoundError):
        size = stored.stat().st_size
        stored.unlink()
        stored.with_name(stored.name + ".refs").unlink(missing_ok=True)
        return size
    return 0


def _tidy(repo: CachedRepo) -> None:
    """Remove empty folders, and the repository's folder when nothing is left in it."""
    for folder, _, _ in os.walk(repo.snapshots, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    if repo.snapshots.exists() or repo.folder.is_symlink():
        return
    with contextlib.suppress(OSError):
        os.rmdir(repo.blobs)
    if not repo.blobs.exists():
        shutil.rmtree(repo.folder, ignore_errors=True)
        shutil.rmtree(repo.cache / ".locks" / repo.folder.name, ignore_errors=True)
