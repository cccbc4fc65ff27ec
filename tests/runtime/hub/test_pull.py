"""Pulling from a Hub that does everything wrong that one can do: no wrong file ever appears."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.fake_hub import COMMIT, FILE, HURRIED, ONE, TOKEN, FakeHub, part_of, visible

import triplepoint
from triplepoint.errors import ModelError
from triplepoint.runtime.gguf import filehash
from triplepoint.runtime.hub.cache import CachedRepo
from triplepoint.runtime.hub.names import ModelName, parse_name
from triplepoint.runtime.hub.progress import ProgressReporter
from triplepoint.runtime.hub.pull import Pulled, pull
from triplepoint.runtime.hub.settings import HubSettings
from triplepoint.runtime.hub.transport import Hub

# --- when all goes well


def test_the_layout_is_the_standard_one(
    get: Callable[..., Pulled], settings: HubSettings, data: bytes, recorder: Any
) -> None:
    """A blob named by its hash, a relative link to it in the snapshot, the branch's commit."""
    pulled = get()

    folder = settings.cache / "models--org--one"
    digest = hashlib.sha256(data).hexdigest()
    (place,) = pulled.paths
    assert place == folder / "snapshots" / COMMIT / FILE
    assert os.readlink(place) == f"../../blobs/{digest}"
    assert (folder / "blobs" / digest).read_bytes() == data
    assert (folder / "refs" / "main").read_text() == COMMIT
    assert (str(pulled.name), pulled.fetched) == ("org/one:Q4_K_M", len(data))
    assert recorder.files == [(FILE, len(data))]
    assert recorder.done[-1] == len(data)
    assert recorder.notes == []
    assert not list(settings.cache.rglob("*.incomplete"))


def test_what_is_there_is_not_pulled_again(
    get: Callable[..., Pulled], settings: HubSettings, hub: FakeHub
) -> None:
    """The second time only the listing is asked for."""
    first = get()
    hub.asked.clear()

    again = get()

    assert again.paths == first.paths
    assert again.fetched == 0
    assert [path for path, _, _ in hub.asked] == ["/api/models/org/one/revision/main"]


def test_the_official_client_finds_what_we_pulled(
    get: Callable[..., Pulled], settings: HubSettings
) -> None:
    """`huggingface_hub` takes our files from the cache, and sees nothing odd in it."""
    hub = pytest.importorskip("huggingface_hub", reason="comes with tokenizers")

    pulled = get()

    found = hub.try_to_load_from_cache("org/one", FILE, cache_dir=settings.cache)
    assert found == str(pulled.paths[0])
    scan = hub.scan_cache_dir(settings.cache)
    assert [repo.repo_id for repo in scan.repos] == ["org/one"]
    assert not scan.warnings


def test_a_file_that_git_keeps_itself(
    hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings
) -> None:
    """Small files have the hash of a git blob, and it is checked too."""
    hub.repos["org/one"].lfs = False
    pulled = get()
    assert pulled.paths[0].resolve().name == hub.repos["org/one"].digest(FILE)
    assert get().fetched == 0

    shutil.rmtree(settings.cache)
    hub.always = "wrong"
    with pytest.raises(ModelError, match="nothing was kept"):
        get()
    assert visible(settings) == []


def test_only_the_owner_may_write(get: Callable[..., Pulled], settings: HubSettings) -> None:
    """Whatever the umask: the cache is shared with others to read, what we remember with none."""
    old = os.umask(0)
    try:
        get()
    finally:
        os.umask(old)

    made = [settings.cache, *settings.cache.rglob("*")]
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in made if not p.is_symlink()}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o755}
    locks = {path for path in modes if path.suffix == ".lock"}
    assert {modes[path] for path in locks} == {0o664}  # empty, and other tools' too
    assert {m for path, m in modes.items() if path.is_file() and path not in locks} == {0o644}
    memory = filehash._memory()
    assert stat.S_IMODE(memory.stat().st_mode) == 0o600
    assert stat.S_IMODE(memory.parent.stat().st_mode) == 0o700


def test_all_shards_come(hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings) -> None:
    """A model in three parts in a folder is pulled whole, and only it."""
    shards = {f"Q8_0/One-Q8_0-{n:05}-of-00003.gguf": bytes([n]) * 1000 for n in (1, 2, 3)}
    hub.repos["org/one"].files |= {**shards, "README.md": b"x", "mmproj-F16.gguf": b"y"}

    pulled = get(ModelName("org/one", selector="q8_0"))

    folder = settings.cache / "models--org--one" / "snapshots" / COMMIT
    assert pulled.paths == tuple(folder / name for name in shards)
    assert [path.read_bytes() for path in pulled.paths] == list(shards.values())
    assert os.readlink(pulled.paths[0]).startswith("../../../blobs/")
    assert len(visible(settings)) == 6


def test_a_tag_has_a_ref_of_its_own(get: Callable[..., Pulled], settings: HubSettings) -> None:
    """Other revisions than main are kept by their names, commits need none."""
    get(parse_name("org/one@refs/pr/1"))
    get(parse_name(f"org/one@{COMMIT}"))

    refs = settings.cache / "models--org--one" / "refs"
    assert [p.relative_to(refs).as_posix() for p in refs.rglob("*") if p.is_file()] == ["refs/pr/1"]


def test_without_links_the_file_lies_in_the_snapshot(
    hub: FakeHub, settings: HubSettings, data: bytes
) -> None:
    """Where links cannot be made the snapshot has the file itself, and it is found again."""
    plain = dataclasses.replace(settings, symlinks=False)
    for fetched in (len(data), 0):
        pulled = pull(ONE, plain, patience=HURRIED)
        assert pulled.fetched == fetched
        assert not pulled.paths[0].is_symlink()
        assert pulled.paths[0].read_bytes() == data


def test_the_token_goes_to_the_endpoint_only(hub: FakeHub, settings: HubSettings) -> None:
    """It is sent with questions to the Hub; signatures are not shown in messages."""
    hub.repos["org/one"].gated = True

    pull(ONE, dataclasses.replace(settings, token=TOKEN), patience=HURRIED)

    for path, _, token in hub.asked:
        assert token == (None if path.startswith("/cdn/") else f"Bearer {TOKEN}")


def test_what_the_hub_is_told_of_us(
    hub: FakeHub, get: Callable[..., Pulled], capfd: pytest.CaptureFixture[str]
) -> None:
    """Our name and version, and nothing of what else is installed; its warnings are not shown."""
    hub.agents.clear()

    get()

    assert hub.agents == {f"triplepoint/{triplepoint.__version__}"}
    assert "\x1b" not in "".join(capfd.readouterr())


# --- when it is interrupted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "note"),
    [
        ("cut:100000", "peer closed connection"),
        ("short:100000", "announces 100,000 bytes"),
        ("silence:100000", "does not answer"),
        ("drip:50", "bytes arrived in"),
        ("500", "answers 500"),
        ("503:0", "answers 503"),
        ("429:0", "answers 429"),
    ],
)
def test_a_failure_is_tried_again(
    fault: str, note: str, hub: FakeHub, get: Callable[..., Pulled], data: bytes, recorder: Any
) -> None:
    """One failure of the server is no failure of ours; what came is not fetched again."""
    hub.faults.append(fault)

    pulled = get()

    assert pulled.paths[0].read_bytes() == data
    (line,) = recorder.notes
    assert note in line
    assert "signature" not in line
    if fault.startswith(("cut", "silence")):
        assert hub.ranges() == [None, "bytes=100000-"]


@pytest.mark.parametrize("fault", ["cut:0", "drip:5", "502"])
def test_trying_has_an_end(
    fault: str, hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings
) -> None:
    """A server that goes on failing is given up, with what failed last."""
    hub.always = fault

    with pytest.raises(ModelError, match=r"cannot pull One.*; 4 attempts failed"):
        get()

    assert visible(settings) == []
    assert len(hub.ranges()) == 4


def test_progress_makes_patient(hub: FakeHub, settings: HubSettings, recorder: Any) -> None:
    """A connection that breaks again and again, but brings a megabyte each time, gets there."""
    data = np.random.default_rng(2).bytes(8 << 20)
    hub.repos["org/one"].files[FILE] = data
    hub.faults.extend([f"cut:{5 << 18}"] * 6)

    pulled = pull(ONE, settings, recorder, patience=HURRIED)

    assert pulled.paths[0].read_bytes() == data
    assert sum("trying again" in note for note in recorder.notes) == 6


def test_the_next_pull_goes_on(
    hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings, data: bytes
) -> None:
    """What one process leaves the next completes: not a byte is fetched twice."""
    hub.faults.append("cut:120000")
    hub.faults.extend(["500"] * 3)
    with pytest.raises(ModelError):
        get()
    assert part_of(settings).stat().st_size == 120_000
    hub.asked.clear()

    pulled = get()

    assert hub.ranges() == ["bytes=120000-"]
    assert pulled.fetched == len(data) - 120_000
    assert pulled.paths[0].read_bytes() == data


def test_ctrl_c_leaves_a_part(
    hub: FakeHub, settings: HubSettings, data: bytes, recorder: Any
) -> None:
    """An interruption in the middle keeps what is there, and the next pull goes on with it."""

    class Impatient(type(recorder)):
        def at(self, done: int) -> None:
            if done > 50_000:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(ONE, settings, Impatient(), patience=HURRIED)
    had = part_of(settings).stat().st_size
    assert 50_000 < had < len(data)
    assert visible(settings) == []

    assert pull(ONE, settings, patience=HURRIED).paths[0].read_bytes() == data
    assert hub.ranges()[-1] == f"bytes={had}-"


# --- when the server lies


@pytest.mark.parametrize("first", ["no-range", "wrong-range", "416"])
def test_an_answer_to_another_question_is_not_added(
    first: str, hub: FakeHub, get: Callable[..., Pulled], data: bytes, recorder: Any
) -> None:
    """A 200 to a range, another range or none at all: the file starts anew and is right."""
    hub.faults.extend(["cut:100000", first])

    pulled = get()

    assert pulled.paths[0].read_bytes() == data
    assert len(recorder.notes) == 2


def test_a_wrong_file_never_appears(
    hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings
) -> None:
    """Other contents are thrown away, and the message has both hashes."""
    hub.always = "wrong"

    with pytest.raises(ModelError, match=r"has the hash .*… must be|but it must be"):
        get()

    assert visible(settings) == []
    assert not list(settings.cache.rglob("*.incomplete"))
    assert len(hub.ranges()) == 1  # all came in one piece: to ask again would bring the same


def test_a_wrong_half_is_found_out(
    hub: FakeHub, get: Callable[..., Pulled], data: bytes, recorder: Any
) -> None:
    """Of two answers one was wrong: the file is fetched once more as a whole."""
    hub.faults.extend(["cut:100000", "wrong"])

    assert get().paths[0].read_bytes() == data
    assert "wrong hash; starting again" in recorder.notes[-1]


def test_a_spoiled_part_is_found_out(
    hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings, data: bytes
) -> None:
    """What was kept and then damaged does not get into the file."""
    hub.faults.extend(["cut:100000", "500", "500", "500"])
    with pytest.raises(ModelError):
        get()
    part = part_of(settings)
    part.write_bytes(bytes(100_000))

    assert get().paths[0].read_bytes() == data


def test_a_part_that_is_whole_but_spoiled(
    hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings, data: bytes, recorder: Any
) -> None:
    """As after a loss of power: it has the size, not the contents. The server is not to blame."""
    repo = CachedRepo(settings.cache, "org/one")
    repo.make()
    repo.part(hashlib.sha256(data).hexdigest()).write_bytes(bytes(len(data)))

    pulled = get()

    assert pulled.paths[0].read_bytes() == data
    assert pulled.fetched == len(data)
    assert "wrong hash; starting again" in recorder.notes[-1]


def test_a_damaged_blob_is_pulled_again(
    hub: FakeHub, get: Callable[..., Pulled], data: bytes, recorder: Any
) -> None:
    """A file in the cache that does not have its hash is replaced."""
    blob = get().paths[0].resolve()
    blob.write_bytes(b"x" * len(data))

    pulled = get()

    assert pulled.fetched == len(data)
    assert pulled.paths[0].read_bytes() == data
    assert "damaged" in recorder.notes[0]


def test_a_lying_listing_costs_no_good_file(
    hub: FakeHub, get: Callable[..., Pulled], data: bytes
) -> None:
    """The hash says what is good: the same one with a smaller size leaves the file as it is."""
    place = get().paths[0]
    hub.repos["org/one"].shrink = 100
    hub.asked.clear()

    assert get().paths == (place,)
    assert place.read_bytes() == data
    assert hub.ranges() == []


def test_a_damaged_file_stays_until_another_is_checked(
    hub: FakeHub, get: Callable[..., Pulled], data: bytes
) -> None:
    """What is here may be of use yet: it goes when what replaces it has the right hash."""
    blob = get().paths[0].resolve()
    blob.write_bytes(data[:-1])
    hub.always = "wrong"

    with pytest.raises(ModelError, match="nothing was kept"):
        get()

    assert blob.read_bytes() == data[:-1]


def test_a_change_between_two_attempts(
    hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings
) -> None:
    """When the server names another hash than at first, nothing is mixed."""
    hub.faults.extend(["cut:100000", "changed"])

    with pytest.raises(ModelError, match="changed on the server during the download"):
        get()

    assert visible(settings) == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("loop", "redirects in a loop: .*redirects"),
        ("gzip", "compressed"),
        ("long", "sent more than 300,000 bytes"),
        ("404", r"no longer has the file 'One-Q4_K_M\.gguf'"),
        ("403", "/cdn/org/one/One-Q4_K_M.gguf answers 403; 4 attempts failed"),
        ("to:file:///etc/passwd", "not https; the redirect was not followed"),
        ("429:3600", "asks for a wait of 3600 s"),
        ("418", "answers 418"),
    ],
)
def test_refusals_are_clear(
    fault: str, message: str, hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings
) -> None:
    """Each kind of refusal has words of its own; none shows a signature; none leaves a file."""
    hub.always = fault

    with pytest.raises(ModelError, match=message) as caught:
        get()

    assert "secret" not in str(caught.value)
    assert visible(settings) == []


def test_redirects_from_outside_do_not_lead_inside(settings: HubSettings) -> None:
    """A public host may not send us to an address of this network, nor from https to http."""
    hub = Hub(settings)
    hub._private = False  # as if the endpoint were a public one
    for target in ("http://127.0.0.1/x", "http://[::1]/x", "http://169.254.169.254/x",
                   "http://10.0.0.1/", "http://localhost/"):  # fmt: skip
        with pytest.raises(ModelError, match="private network; the redirect was not followed"):
            hub._check(target)
    hub._check("https://8.8.8.8/")
    secure = Hub(dataclasses.replace(settings, endpoint="https://a.example"))
    with pytest.raises(ModelError, match="not https"):
        secure._check("http://8.8.8.8/")


# --- all of it together


def tear(hub: FakeHub, settings: HubSettings, rng: np.random.Generator, data: bytes) -> None:
    """Pull through random faults and interruptions until it is there; look after each."""
    digest = hashlib.sha256(data).hexdigest()
    for _ in range(50):
        hub.faults.clear()
        for kind in rng.choice(FAULTS, rng.integers(0, 6)):
            count = int(rng.integers(0, len(data)))
            hub.faults.append(f"{kind}:{count}" if kind in ("cut", "short") else str(kind))

        class Killer(ProgressReporter):
            left = int(rng.integers(1, 60))

            def at(self, done: int) -> None:
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt

        try:
            pulled = pull(ONE, settings, Killer(), patience=HURRIED)
        except (ModelError, KeyboardInterrupt):
            pulled = None
        for path in visible(settings):
            if path.suffix == ".gguf" or path.parent.name == "blobs":
                assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
        if pulled is not None:
            assert pulled.paths[0].read_bytes() == data
            return
    raise AssertionError("it never came")


FAULTS = ["cut"] * 4 + ["no-range", "wrong-range", "416", "500", "wrong", "short", "changed",
                        "gzip", "long"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "rounds", [8, pytest.param(200, marks=pytest.mark.exhaustive)], ids=["few", "many"]
)
def test_no_wrong_file_ever(
    rounds: int, hub: FakeHub, settings: HubSettings, data: bytes, rng: np.random.Generator
) -> None:
    """Whatever comes together, a file that can be seen is the right one; and in the end it is."""
    for _ in range(rounds):
        tear(hub, settings, rng, data)
        shutil.rmtree(settings.cache)


def test_cuts_cost_no_byte_twice(
    hub: FakeHub, get: Callable[..., Pulled], data: bytes, rng: np.random.Generator
) -> None:
    """However often a connection is cut, each next one asks from the byte after the last."""
    at = 0
    for _ in range(3):
        step = int(rng.integers(1, 90_000))
        hub.faults.append(f"cut:{step}")
        at += step
    assert get().paths[0].read_bytes() == data

    starts = [int((r or "bytes=0-")[6:-1]) for r in hub.ranges()]
    assert starts == sorted(starts)
    assert starts[-1] == at
