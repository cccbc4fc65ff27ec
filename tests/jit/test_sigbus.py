"""Mappings whose file becomes shorter: in a process of its own, for what fails ends that."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the handler is for Linux")

_BEGIN = """
import ctypes, mmap, os, signal, sys, tempfile, threading
import numpy as np
from triplepoint.jit import sigbus
from triplepoint.jit.sigbus import SLOTS, guard

def mapped(size=5 * mmap.PAGESIZE + 7):
    file = tempfile.NamedTemporaryFile()
    file.write(b"x" * size)
    file.flush()
    return file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
"""


def run(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Python with the guard at hand, in a process of its own."""
    command = [sys.executable, *flags, "-c", _BEGIN + textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("-X", "faulthandler")])
def test_what_is_lost_reads_as_zeros(flags: tuple[str, ...]) -> None:
    """The read goes on, the guard says so, and mappings beside it are as they were."""
    done = run(
        """
        cut, data = mapped()
        whole, other = mapped()
        guards = guard(data), guard(other)
        os.truncate(cut.name, 0)
        assert np.frombuffer(data, np.uint8).sum() == 0
        assert data[-3:] == bytes(3)
        assert other[:] == b"x" * len(other)
        assert [g[0] for g in guards] == [1, 0]
        assert sigbus.faults[0] == 1
        """,
        *flags,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_threads_that_meet_it_at_once() -> None:
    """Whichever thread faults first, all go on."""
    done = run(
        """
        for _ in range(50):
            file, data = mapped(400 * mmap.PAGESIZE)
            held, values = guard(data), np.frombuffer(data, np.uint8)
            gate = threading.Barrier(4)
            def read():
                gate.wait()
                for _ in range(20):
                    values.sum()
            threads = [threading.Thread(target=read) for _ in range(3)]
            for thread in threads:
                thread.start()
            gate.wait()
            os.truncate(file.name, 0)
            for thread in threads:
                thread.join()
            values.sum()
            assert held[0]
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("-X", "faulthandler")])
def test_other_faults_end_the_process_as_before(flags: tuple[str, ...]) -> None:
    """A mapping that is not guarded, or no more, and a signal that somebody sends."""
    for end in ("data[0]", "os.kill(os.getpid(), signal.SIGBUS)"):
        done = run(
            f"""
            _, sound = mapped()
            held = guard(sound)
            file, data = mapped()
            os.truncate(file.name, 0)
            {end}
            """,
            *flags,
        )
        assert done.returncode == -signal.SIGBUS, done.stderr
        assert ("Bus error" in done.stderr) == bool(flags)


def test_a_handler_of_others_leaves_the_guard_in_place() -> None:
    """A signal that it takes does not switch off what was installed after it."""
    done = run(
        """
        met = []
        signal.signal(signal.SIGBUS, lambda number, frame: met.append(number))
        file, data = mapped()
        held = guard(data)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGBUS)
        assert met == [signal.SIGBUS] * 2
        os.truncate(file.name, 0)
        assert data[0] == 0 and held[0]
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_slots_come_back() -> None:
    """A mapping that is gone leaves its slot to another; without one, none is guarded."""
    done = run(
        """
        kept = [mapped(1) for _ in range(900)]
        guards = [guard(data) for _, data in kept]
        assert all(held is not None for held in guards)
        for _ in range(SLOTS):
            file, data = mapped(1)
            assert guard(data) is not None
        file, data = mapped(1)
        held = guard(data)
        os.truncate(file.name, 0)
        assert data[0] == 0 and held[0]
        assert not any(g[0] for g in guards)
        kept += [mapped(1) for _ in range(SLOTS)]
        guards += [guard(data) for _, data in kept[900:]]
        assert guards[-1] is None
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mapping_that_goes_while_another_is_guarded() -> None:
    """The collector may find a mapping in the midst of `guard`: nothing waits for itself."""
    done = run(
        """
        import faulthandler, gc

        class Collected(list):
            def pop(self):
                gc.collect()
                return super().pop()

        faulthandler.dump_traceback_later(60, exit=True)
        first, data = mapped()
        assert guard(data) is not None
        ring = [data]
        ring.append(ring)
        handler = sigbus._installed()
        handler._free = Collected(handler._free)
        before = len(handler._free)
        del data, ring
        second, other = mapped()
        held = guard(other)
        assert len(handler._free) == before
        os.truncate(second.name, 0)
        assert other[0] == 0 and held[0]
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cpu_that_is_known_later() -> None:
    """Where nothing could be compiled for the CPU at first, later mappings are guarded."""
    done = run(
        """
        mask = os.environ.pop("TRIPLEPOINT_CPU", None)
        os.environ["TRIPLEPOINT_CPU"] = "no such CPU"
        assert guard(mapped()[1]) is None
        os.environ.pop("TRIPLEPOINT_CPU")
        if mask is not None:
            os.environ["TRIPLEPOINT_CPU"] = mask
        file, data = mapped()
        held = guard(data)
        os.truncate(file.name, 0)
        assert data[0] == 0 and held[0]
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
