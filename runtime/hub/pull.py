"""Pull a model from the Hub into the cache: list, check disk space, download."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from ...errors import ModelError, UnsupportedModelError
from ..gguf import filehash
from .cache import CachedRepo, as_model_error
from .download import Download
from .find import checked, find
from .listing import Listing, list_repository
from .names import ModelName
from .progress import ProgressReporter, size_text
from .settings import HubSettings
from .transport import Hub, RetryPolicy
from .variants import RepoFile, Variant, choose, variants_of

_MARGIN = 64 << 20  # bytes that a disk should keep


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model that is now in the cache.

    Attributes:
        name: with the selector that finds exactly this model again.
        commit: the state of the repository that it was taken from.
        variant: its files.
        paths: where they are; the first is the one to load.
        fetched: bytes that had to be downloaded.
    """

    name: ModelName
    commit: str
    variant: Variant
    paths: tuple[Path, ...]
    fetched: int


def pull(
    name: ModelName,
    settings: HubSettings,
    watcher: ProgressReporter | None = None,
    *,
    patience: RetryPolicy | None = None,
    force: bool = False,
) -> Pulled:
    """Pull the model called `name`, unless it is cached already.

    A file appears under its name only when its hash is that of the repository. What an attempt
    leaves unfinished, the next goes on with.

    Args:
        name: repository, revision and quantization or file.
        settings: where the Hub and the cache are.
        watcher: receives the progress.
        patience: the retry policy.
        force: pull a model too that this version cannot run.

    Raises:
        ChoiceError: it is not clear which model of the repository is meant.
        UnsupportedModelError: it could not be run, and `force` is not set.
        ModelError: anything else; the message says what to do.
    """
    watcher = watcher or ProgressReporter()
    with as_model_error(f"cannot pull {name}", settings.cache):
        if settings.offline:
            found = find(name, settings, watcher)
            return Pulled(found.name, found.commit, found.variant, found.paths, 0)
        hub = Hub(settings, patience)
        listing = list_repository(hub, name, watcher.note)
        variant = choose(variants_of(listing.files), name.selector, name.repo)
        if not force:
            _refuse_unsupported(name, listing, variant)
        repo = CachedRepo(settings.cache, name.repo)
        _make_room(repo, listing.commit, variant)
        fetched, paths = 0, list[Path]()
        for file in variant.files:
            fetched += _fetch(hub, repo, name, listing.commit, file, watcher)
            # At once: of a model that is left unfinished `ls` shows, and `rm` removes, what is
            # there.
            digest, links = file.digest or "", settings.symlinks
            paths.append(repo.link(listing.commit, file.path, digest, symlinks=links))
        repo.set_ref(name.revision, listing.commit)
        exact = ModelName(name.repo, name.revision, _selector(listing, variant))
        return Pulled(exact, listing.commit, variant, tuple(paths), fetched)


def _fetch(
    hub: Hub,
    repo: CachedRepo,
    name: ModelName,
    commit: str,
    file: RepoFile,
    watcher: ProgressReporter,
) -> int:
    """Download `file` into the blobs if it is missing; return the bytes downloaded.

    The hash alone says whether what is there is good: a listing may lie about the size. What is
    there stays until something better has been checked.
    """
    assert file.digest is not None
    watcher.begin(file.path, file.size)
    blob, part = repo.blob(file.digest), repo.part(file.digest)
    waiting = f"waiting for another process that is pulling {file.path}"
    with repo.lock(file.digest, lambda: watcher.note(waiting)):
        there = _there(repo, commit, file)
        if there.exists():
            if checked(there, file.digest, watcher):
                watcher.at(file.size)
                return 0
            watcher.note(f"{file.path} is downloaded but damaged; pulling it again")
        repo.make()  # `rm` in another process may have taken the empty folders away
        received = Download(hub, name, commit, file, part, watcher).run()
        os.replace(part, blob)
        if len(file.digest) == 64:
            filehash.remember(blob.stat(), file.digest)
        return min(received, file.size)  # more where it had to start over


def _there(repo: CachedRepo, commit: str, file: RepoFile) -> Path:
    """Return the path that a file's contents are cached at: the blob, else the snapshot's file."""
    blob = repo.blob(file.digest or "")
    return blob if blob.exists() else repo.snapshots / commit / file.path


def _make_room(repo: CachedRepo, commit: str, variant: Variant) -> None:
    """Create the folders, and check that the disk has room for the missing files."""
    try:
        repo.make()
    except OSError as error:
        message = f"cannot create the cache folder {repo.blobs}: {error.strerror}"
        raise ModelError(f"{message}; set HF_HUB_CACHE to use another") from error
    needed = 0
    for file in variant.files:
        assert file.digest is not None
        part = repo.part(file.digest)
        if not _there(repo, commit, file).exists():
            needed += max(0, file.size - (part.stat().st_size if part.exists() else 0))
    free = shutil.disk_usage(repo.blobs).free
    if needed and needed + _MARGIN > free:
        raise ModelError(
            f"{variant.name} needs {size_text(needed)} more, but {repo.cache} has "
            f"{size_text(free)} free; free some space, or set HF_HUB_CACHE to a folder on "
            "another disk"
        )


def _refuse_unsupported(name: ModelName, listing: Listing, variant: Variant) -> None:
    """Refuse, before the download, files that are known to be unsupported."""
    from .model_info import unsupported_architecture, unsupported_quant

    why = unsupported_architecture(listing.architecture) or unsupported_quant(variant.quant)
    if why:
        raise UnsupportedModelError(f"{name.repo}: {why}; --force downloads it anyway")


def _selector(listing: Listing, variant: Variant) -> str:
    """Return the quantization if it is unique, else the file's path."""
    same = [v for v in variants_of(listing.files) if not v.extra and v.quant == variant.quant]
    return variant.quant if variant.quant and same == [variant] else variant.name
