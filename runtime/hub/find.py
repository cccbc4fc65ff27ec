"""Offline lookup of a model in the cache by name."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

from ...arguments import read_own
from ...errors import ModelError
from ..gguf import filehash
from .aliases import KnownModel, alias_of
from .cache import CachedFile, CachedRepo, as_model_error
from .names import MAIN, ModelName
from .progress import ProgressReporter, size_text
from .settings import HubSettings
from .variants import ChoiceError, Variant, choose, variants_of


class NotPulledError(ModelError):
    """The model is not in the cache, but it may be on the Hub."""


@dataclass(frozen=True, slots=True)
class Found:
    """A model in the cache.

    Attributes:
        name: with the selector that finds exactly this model.
        commit: the snapshot that it is in.
        variant: its files, as in the repository.
        cached: the same files on this disk.
    """

    name: ModelName
    commit: str
    variant: Variant
    cached: tuple[CachedFile, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of its files; the first is the one to load."""
        return tuple(file.local_path for file in self.cached)


def models_of(repo: CachedRepo, revision: str = MAIN) -> list[Found]:
    """List a repository's cached models, each in its newest commit only.

    Those at `revision` come first. If that is ``main``, the others follow.
    """
    at = repo.commit(revision)
    commits = [at] if at else []
    if revision == MAIN:
        commits += [commit for commit in repo.commits() if commit != at]
    found: dict[str, Found] = {}
    for commit in commits:
        files = {file.path: file for file in repo.files(commit)}
        for variant in variants_of(file.file for file in files.values()):
            members = tuple(files[file.path] for file in variant.files)
            name = ModelName(repo.repo, revision)
            # An older whole one rather than a newer one that lacks shards.
            old = found.get(variant.name)
            if old is None or (variant.complete and not old.variant.complete):
                found[variant.name] = Found(name, commit, variant, members)
    return [_named(one, list(found.values())) for one in found.values()]


def is_pulled(model: KnownModel, settings: HubSettings) -> bool:
    """Return whether a well-known model is in the cache, without reading it."""
    return path_of(model, settings) is not None


def path_of(model: KnownModel, settings: HubSettings) -> Path | None:
    """Return the path of a well-known model's newest cached commit; None if there is none."""
    repo = CachedRepo(settings.cache, model.repo)
    paths = (repo.snapshots / commit / model.file for commit in repo.commits())
    return next((path for path in paths if path.exists()), None)


def find(name: ModelName, settings: HubSettings, watcher: ProgressReporter | None = None) -> Found:
    """Find the model called `name` in the cache; verify its files against their blobs' hashes.

    A file is hashed once; afterwards it is known by its size and time.

    Raises:
        NotPulledError: there is nothing of that name in the cache.
        ChoiceError: there are several, and it is not clear which is meant.
        ModelError: a file is damaged.
    """
    with as_model_error(f"cannot read {name}", settings.cache):
        repo = CachedRepo(settings.cache, name.repo)
        whole = [one for one in models_of(repo, name.revision) if one.variant.complete]
        # A projector alone is no model: the one that it belongs to can be pulled.
        if not whole or (name.selector is None and all(one.variant.extra for one in whole)):
            raise NotPulledError(_missing(name, repo, settings))
        where = f"{repo.repo} in {settings.cache}"
        try:
            variant = choose([one.variant for one in whole], name.selector, where)
        except ChoiceError as error:
            if name.selector and not error.fits:
                raise NotPulledError(_missing(name, repo, settings)) from error
            raise
        found = next(one for one in whole if one.variant is variant)
        for file in found.cached:
            verify(file, watcher or ProgressReporter())
            with contextlib.suppress(OSError):  # a file of someone else's
                filehash.touch(file.local_path)
        return found


def verify(file: CachedFile, watcher: ProgressReporter) -> None:
    """Verify the hash of a file if its blob has one; raise ModelError if it differs."""
    if file.digest is None:
        return
    if filehash.remembered(file.local_path.stat()) is None:
        watcher.begin(f"checking {file.path}", file.size)
    if not checked(file.local_path, file.digest, watcher):
        raise ModelError(
            f"{file.local_path} is damaged: its hash is not {file.digest[:16]}…, as its blob's "
            "name says; pull it again"
        )


def checked(path: Path, digest: str, watcher: ProgressReporter) -> bool:
    """Return whether the file at `path` has this SHA-256, or hash of a git blob."""
    if len(digest) == 64:
        return filehash.sha256(path, watcher.at) == digest
    data = read_own(path)  # git's hash: such files are small
    hasher = git_hasher(len(data))
    hasher.update(data)
    return hasher.hexdigest() == digest


def git_hasher(size: int) -> hashlib._Hash:
    """Return a hasher for the contents of a git blob of `size` bytes."""
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def _named(one: Found, models: list[Found]) -> Found:
    """Return the name with a selector that identifies it among `models`."""
    quant = one.variant.quant
    same = [m for m in models if not m.variant.extra and m.variant.quant == quant]
    alone = quant and len(same) == 1 and not one.variant.extra
    name = ModelName(one.name.repo, one.name.revision, quant if alone else one.variant.name)
    return Found(name, one.commit, one.variant, one.cached)


def _missing(name: ModelName, repo: CachedRepo, settings: HubSettings) -> str:
    parts = repo.unfinished()
    unfinished = f" ({size_text(parts)} of an unfinished download are)" if parts else ""
    known = (alias_of(name.repo, name.selector) if name.revision == MAIN else None) or name
    if settings.offline:
        return f"{name} is not in {settings.cache}{unfinished}, and HF_HUB_OFFLINE is set"
    return f"{name} is not in {settings.cache}{unfinished}; get it with: triplepoint pull {known}"
