"""Runners: the same kernel tests for every feature set that this host runs or emulates."""

from __future__ import annotations

import pytest
from helpers.runners import Emulated, Native, Runner, emulation_lacks

from triplepoint.jit import targets
from triplepoint.jit.compile import ObjectCache, default_folder

NATIVE = [target.name for target in targets.runnable()]
ARM = [t.name for t in targets.TARGETS.values() if t.arch == "aarch64" and t.name not in NATIVE]


_runners: dict[str, Runner] = {}


@pytest.fixture(params=NATIVE)
def native(request: pytest.FixtureRequest) -> Native:
    """Calls kernels of each feature set that this machine can run."""
    return _native(request.param)


@pytest.fixture(params=[*NATIVE, *(pytest.param(name, id=f"{name}-qemu") for name in ARM)])
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """The same, and the aarch64 feature sets under qemu-user."""
    name = request.param
    if name in NATIVE:
        return _native(name)
    lacks = emulation_lacks()
    if lacks:
        pytest.skip(lacks)
    if name not in _runners:
        cache, folder = ObjectCache(default_folder()), tmp_path_factory.mktemp(name)
        _runners[name] = Emulated(targets.TARGETS[name], cache, folder)
    return _runners[name]


def _native(name: str) -> Native:
    """One library for each target, so that each kernel is loaded once."""
    found = _runners.setdefault(name, Native(targets.TARGETS[name]))
    assert isinstance(found, Native)
    return found
