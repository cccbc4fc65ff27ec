"""Pulls from a repository that is not as hoped: what is refused, and in which words."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.fake_hub import COMMIT, FILE, HURRIED, ONE, FakeHub, FakeRepo, part_of

from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.hub import pull as pulling
from triplepoint.runtime.hub.names import ModelName, parse_name
from triplepoint.runtime.hub.pull import Pulled, pull
from triplepoint.runtime.hub.settings import HubSettings
from triplepoint.runtime.hub.variants import ChoiceError


def test_gated(hub: FakeHub, settings: HubSettings) -> None:
    """Without a token it says how to get one, with one that it has no access."""
    hub.repos["org/one"].gated = True

    with pytest.raises(ModelError, match="is gated: accept its terms there, then set HF_TOKEN"):
        pull(ONE, settings, patience=HURRIED)
    with pytest.raises(ModelError, match="the token's account has no access") as caught:
        pull(ONE, dataclasses.replace(settings, token="hf_other"), patience=HURRIED)
    assert "hf_other" not in str(caught.value)


def test_other_refusals_of_the_hub(hub: FakeHub, settings: HubSettings) -> None:
    """A token that is not accepted; words of the server, harmless to a terminal."""
    hub.api_faults.extend(["token", "disabled"])

    with pytest.raises(ModelError, match="does not accept the token; renew HF_TOKEN"):
        pull(ONE, dataclasses.replace(settings, token="hf_other"), patience=HURRIED)
    with pytest.raises(ModelError, match=r"answers 403: Access to this resource is \\x1b\[2Jdisa"):
        pull(ONE, settings, patience=HURRIED)


def test_a_signature_that_ran_out(hub: FakeHub, get: Callable[..., Pulled], data: bytes) -> None:
    """A 403 by the far end, not by the Hub, asks the Hub for a new address."""
    hub.faults.extend(["cut:1000", "403"])

    assert get().paths[0].read_bytes() == data
    assert [path for path, _, _ in hub.asked].count(f"/org/one/resolve/{COMMIT}/{FILE}") == 3


def test_unknown_names_have_near_ones(hub: FakeHub, settings: HubSettings) -> None:
    """A slip, a name without -GGUF, a branch that is not there."""
    hub.repos["org/Model-4B-GGUF"] = FakeRepo({"x.gguf": b"x"})
    hub.repos["org/Model-4B"] = FakeRepo({"model.safetensors": b"x"})

    for wrong, message in {
        "org/Modle-4B-GGUF": "no model org/Modle-4B-GGUF .*did you mean org/Model-4B-GGUF",
        "other/Model-4B": "did you mean org/Model-4B-GGUF",
        "org/Model-4B": "org/Model-4B has no GGUF file; did you mean org/Model-4B-GGUF",
        "org/nothing-like-it": r"no model org/nothing-like-it on 127\.0\.0\.1:\d+ \(it may be",
        "org/one@v9": "no branch, tag or commit 'v9'",
    }.items():
        with pytest.raises(ModelError, match=message):
            pull(parse_name(wrong), settings, patience=HURRIED)


def test_a_hint_is_not_waited_for(hub: FakeHub, settings: HubSettings) -> None:
    """A search that hangs costs the hint, not the answer."""
    hub.repos["org/Model-4B-GGUF"] = FakeRepo({"x.gguf": b"x"})
    hub.pause_s = 5 * HURRIED.read_s

    with pytest.raises(ModelError, match="no model org/Modle-4B-GGUF") as caught:
        pull(parse_name("org/Modle-4B-GGUF"), settings, patience=HURRIED)

    assert "did you mean" not in str(caught.value)


def test_a_quantization_that_is_not_there(hub: FakeHub, settings: HubSettings) -> None:
    """The error carries what there is to choose from, and nothing was downloaded."""
    hub.repos["org/one"].files = {f"One-{q}.gguf": b"x" for q in ("Q5_K_M", "Q8_0")}

    with pytest.raises(
        ChoiceError, match="has no Q4_K_M; choose one by adding it, as in :Q5_K_M"
    ) as c:
        pull(ONE, settings, patience=HURRIED)
    assert [v.quant for v in c.value.variants] == ["Q5_K_M", "Q8_0"]
    with pytest.raises(ChoiceError, match=r"has no 'Q5_K_S'; did you mean Q5_K_M\?"):
        pull(parse_name("org/one:Q5_K_S"), settings, patience=HURRIED)
    with pytest.raises(ChoiceError, match=r"did you mean One-Q8_0\.gguf\?"):
        pull(parse_name("org/one:0ne_Q8_0.gguf"), settings, patience=HURRIED)
    assert hub.ranges() == []


@pytest.mark.parametrize(
    "answer",
    ["[]", "{", '{"sha": "x"}', '{"sha": 3}', '{"sha": "../../x", "siblings": []}', "null"],
)
def test_an_endpoint_that_is_no_hub(answer: str, hub: FakeHub, settings: HubSettings) -> None:
    """An answer in another form is said to be that."""
    hub.api_faults.append(answer)

    with pytest.raises(ModelError, match="does not answer like a Hub"):
        pull(ONE, settings, patience=HURRIED)


@pytest.mark.parametrize(
    "path",
    [
        "../x.gguf",
        "/x.gguf",
        "a/../../x.gguf",
        "a\\b.gguf",
        "C:x.gguf",
        "a\n.gguf",
        "a//b.gguf",
        "\ud800.gguf",
    ],
)
def test_files_cannot_lead_out_of_the_cache(
    path: str, hub: FakeHub, settings: HubSettings, tmp_path: Path
) -> None:
    """A listing with a path that leads elsewhere is refused before anything is written."""
    hub.repos["org/one"].files = {path: b"x"}

    with pytest.raises(ModelError, match="unsafe name"):
        pull(ONE, settings, patience=HURRIED)

    assert not settings.cache.exists()


@pytest.mark.parametrize("size", ["-1", "1.5", "9" * 400, "1e400"])
def test_a_size_that_no_file_has(size: str, hub: FakeHub, settings: HubSettings) -> None:
    """It is refused with the file's name, before anything is computed from it."""
    file = f'{{"rfilename": "x.gguf", "size": {size}, "blobId": "{COMMIT}"}}'
    hub.api_faults.append(f'{{"id": "a/b", "sha": "{COMMIT}", "siblings": [{file}]}}')

    with pytest.raises(ModelError, match=r"gives no size or hash for x\.gguf"):
        pull(ONE, settings, patience=HURRIED)


@pytest.mark.parametrize("name", ["x" * 300, "é" * 130, "folder" * 50 + "/x"])
def test_a_name_too_long_for_a_disk(name: str, hub: FakeHub, settings: HubSettings) -> None:
    """It is refused by its name, before the system would."""
    hub.repos["org/one"].files = {f"{name}.gguf": b"x"}

    with pytest.raises(ModelError, match="whose name is too long for a disk"):
        pull(ONE, settings, patience=HURRIED)


def test_what_the_system_refuses(hub: FakeHub, settings: HubSettings) -> None:
    """A file where the cache must have a folder: what, where, and the variable that helps."""
    settings.cache.mkdir()
    (settings.cache / ".locks").write_text("in the way")

    with pytest.raises(ModelError, match=r"cannot pull org/one: .*\.locks.*set HF_HUB_CACHE"):
        pull(ONE, settings, patience=HURRIED)


def test_the_library_is_imported_to_pull_only() -> None:
    """It takes a quarter of a second, which finding and listing models must not cost."""
    code = (
        "import sys, triplepoint.runtime.hub.find, triplepoint.runtime.hub.pull, "
        "triplepoint.runtime.cli.models.ls, triplepoint.runtime.cli.models.pull; "
        "print([name for name in sys.modules if name.split('.')[0] == 'huggingface_hub'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_busy_listings_are_asked_again(hub: FakeHub, settings: HubSettings, recorder: Any) -> None:
    """The first question is repeated too, and an end comes there as well."""
    hub.api_faults.extend(["503", "500"])
    assert pull(ONE, settings, recorder, patience=HURRIED).fetched
    assert len(recorder.notes) == 2

    hub.api_faults.extend(["503"] * 4)
    with pytest.raises(ModelError, match=r"cannot ask .* for org/one: .*3 attempts failed"):
        pull(ONE, settings, patience=HURRIED)


def test_nobody_there(settings: HubSettings) -> None:
    """An endpoint that does not listen is named."""
    nobody = dataclasses.replace(settings, endpoint="http://127.0.0.1:9")

    message = r"cannot ask http://127\.0\.0\.1:9 .*3 attempts failed: check the network"
    with pytest.raises(ModelError, match=message):
        pull(ONE, nobody, patience=HURRIED)


def test_what_cannot_be_run_is_refused_before(
    hub: FakeHub, get: Callable[..., Pulled], settings: HubSettings
) -> None:
    """Architectures and types without kernels cost no download, unless it is asked for."""
    repo = hub.repos["org/one"]
    repo.architecture = "mamba"
    with pytest.raises(UnsupportedModelError, match=r"'mamba' is not supported; .*--force"):
        get()
    assert hub.ranges() == []
    assert get(force=True).fetched

    repo.architecture = "qwen3"
    repo.files["One-TQ1_0.gguf"] = b"x"
    with pytest.raises(UnsupportedModelError, match="weights in TQ1_0 have no kernel"):
        get(ModelName("org/one", selector="TQ1_0"))


def test_a_full_disk_is_seen_before(
    get: Callable[..., Pulled], hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked of the network's far end when there is no room for it."""
    usage = shutil.disk_usage("/")._replace(free=1_000_000)
    monkeypatch.setattr(pulling.shutil, "disk_usage", lambda _: usage)

    with pytest.raises(
        ModelError, match=r"needs 300 kB more, but .* has 1\.0 MB free; free some space"
    ):
        get()

    assert hub.ranges() == []


def test_without_links_no_room_is_wanted_for_what_is_there(
    hub: FakeHub, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk that has the file is no reason to refuse it."""
    plain = dataclasses.replace(settings, symlinks=False)
    pull(ONE, plain, patience=HURRIED)
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(pulling.shutil, "disk_usage", lambda _: usage)

    assert pull(ONE, plain, patience=HURRIED).fetched == 0


def test_a_disk_that_fills_up(
    get: Callable[..., Pulled], settings: HubSettings, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written before stays, and the next pull goes on from there."""
    write = os.write

    def full(descriptor: int, piece: Any) -> int:
        if os.lseek(descriptor, 0, os.SEEK_CUR) > 100_000:
            raise OSError(28, "No space left on device")
        return write(descriptor, piece)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(ModelError, match=r"the disk with .* is full after .* of 300 kB"):
            get()
    had = part_of(settings).stat().st_size
    assert had > 100_000

    assert get().fetched == len(data) - had


def test_two_pulls_at_once(hub: FakeHub, settings: HubSettings, data: bytes, recorder: Any) -> None:
    """The second waits for the first and then finds the file there."""
    hub.faults.append("silence:1000")  # the first is held up until it hangs up
    results: list[Pulled] = []
    watchers = [recorder, type(recorder)()]
    threads = [
        threading.Thread(
            target=lambda w=w: results.append(pull(ONE, settings, w, patience=HURRIED))
        )
        for w in watchers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(one.fetched for one in results) == [0, len(data)]
    assert [one.paths[0].read_bytes() == data for one in results] == [True, True]
    assert any("waiting for another process" in n for w in watchers for n in w.notes)


def test_offline_asks_nobody(hub: FakeHub, settings: HubSettings) -> None:
    """With HF_HUB_OFFLINE what is there is found, what is not is said, and no question is asked."""
    offline = dataclasses.replace(settings, offline=True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        pull(ONE, offline)
    online = pull(ONE, settings, patience=HURRIED)
    hub.asked.clear()

    assert pull(ONE, offline).paths == online.paths
    assert hub.asked == []
