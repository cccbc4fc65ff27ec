"""Runners: the same kernel tests for every feature set that this host runs or emulates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from helpers import feature_sets
from helpers.feature_sets import NATIVE
from helpers.native_ops import MakePool, fresh_library
from helpers.runners import CheckedCache, Emulated, Native, Runner, emulation_lacks

from triplepoint.jit import targets
from triplepoint.jit.compile import Library, default_folder
from triplepoint.jit.pool import Pool

_runners: dict[str, Runner] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Feature sets for tests that name none: all that differ in what the file's kernels ask for."""
    marks = metafunc.definition.iter_markers("parametrize")
    given = {name for mark in marks for name in feature_sets.arguments(mark)}
    for fixture in ("native", "runner", "own"):
        if fixture in given or fixture not in metafunc.fixturenames:
            continue
        asks = getattr(metafunc.module, "ASKS", (feature_sets.DOT, feature_sets.BF16))
        names = feature_sets.names(fixture, asks)
        metafunc.parametrize(fixture, names, indirect=True, ids=map(feature_sets.label, names))


@pytest.fixture
def native(request: pytest.FixtureRequest) -> Native:
    """Calls kernels of each feature set that this machine can run."""
    return _native(request.param)


@pytest.fixture
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """The same, and the aarch64 feature sets under qemu-user."""
    return _runner(request.param, tmp_path_factory, keep=True)


@pytest.fixture
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """As `runner`, for kernels that a test file defines: their objects are not kept on disk.

    The cache's key covers the sources of jit/, not those of tests.
    """
    return _runner(request.param, tmp_path_factory, keep=False)


def _runner(name: str, folders: pytest.TempPathFactory, keep: bool) -> Runner:
    """One runner for each target, so that each kernel is loaded once."""
    if name in NATIVE and keep:
        return _native(name)
    key = f"{name} {keep}"
    if key not in _runners:
        target, cache = targets.TARGETS[name], CheckedCache(default_folder() if keep else None)
        if name in NATIVE:
            _runners[key] = Native(target, cache)
        else:
            lacks = emulation_lacks()
            if lacks:
                pytest.skip(lacks)
            _runners[key] = Emulated(target, cache, folders.mktemp(name))
    return _runners[key]


def _native(name: str) -> Native:
    found = _runners.setdefault(name, Native(targets.TARGETS[name], CheckedCache(default_folder())))
    assert isinstance(found, Native)
    return found


@pytest.fixture(scope="module")
def library() -> Library:
    return fresh_library()


@pytest.fixture
def make_pool(library: Library) -> Iterator[MakePool]:
    """Makes pools that are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(threads: int) -> Pool:
            pool = Pool(library, threads)
            stack.callback(pool.close)
            return pool

        yield make
