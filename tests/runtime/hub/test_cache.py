"""Finding models in the cache and removing them; also those that other tools put there."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fake_hub import COMMIT, FakeHub, FakeRepo
from helpers.splits import split_gguf
from helpers.tiny_qwen3 import write_tiny

from triplepoint import Engine
from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.engine.engine import NANO, resolve_model
from triplepoint.runtime.gguf import filehash
from triplepoint.runtime.gguf.file import GGMLType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.hub.cache import CachedRepo, cached_repos
from triplepoint.runtime.hub.find import NotPulledError, find, models_of
from triplepoint.runtime.hub.model_info import read_model_info, unsupported_quant
from triplepoint.runtime.hub.names import ModelName, parse_name
from triplepoint.runtime.hub.pull import pull
from triplepoint.runtime.hub.remove import remove
from triplepoint.runtime.hub.settings import HubSettings
from triplepoint.runtime.hub.variants import ChoiceError
from triplepoint.runtime.models import REFUSED

ONE = ModelName("org/one")
OTHER = "f" * 40
Make = Callable[..., CachedRepo]


@pytest.fixture
def make(settings: HubSettings) -> Make:
    """Put a repository into the cache as other tools do."""

    def run(repo: str, files: dict[str, bytes], commit: str = COMMIT, ref: str = "") -> CachedRepo:
        made = CachedRepo(settings.cache, repo)
        for path, data in files.items():
            blob = made.blobs / hashlib.sha256(data).hexdigest()
            place = made.snapshots / commit / path
            blob.parent.mkdir(parents=True, exist_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(data)
            place.symlink_to(os.path.relpath(blob, place.parent))
        if ref:
            (made.folder / "refs").mkdir(exist_ok=True)
            (made.folder / "refs" / ref).write_text(commit)
        return made

    return run


def tree(folder: Path) -> set[str]:
    """Every file and link under a folder."""
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_symlink() or p.is_file()}


# --- finding


def test_a_model_of_another_tool_is_found(make: Make, settings: HubSettings) -> None:
    """By repository, quantization and file; without a choice by the repository alone."""
    repo = make("org/one", {"A-Q4_K_M.gguf": b"a", "A-Q8_0.gguf": b"b", "x.json": b"c"}, ref="main")

    for text, file in {
        "org/one": "A-Q4_K_M.gguf",
        "org/one:q8_0": "A-Q8_0.gguf",
        "org/one:a-q8_0.gguf": "A-Q8_0.gguf",
        f"org/one@{COMMIT}:Q8_0": "A-Q8_0.gguf",
        f"org/one@{COMMIT[:9]}:Q8_0": "A-Q8_0.gguf",
    }.items():
        assert find(parse_name(text), settings).paths == (repo.snapshots / COMMIT / file,)
    assert [str(m.name) for m in models_of(repo)] == ["org/one:Q4_K_M", "org/one:Q8_0"]


def test_the_official_client_pulls_for_us(hub: FakeHub, settings: HubSettings) -> None:
    """What `huggingface_hub` downloads is found and counts as pulled; that tests our Hub too."""
    official = pytest.importorskip("huggingface_hub", reason="comes with tokenizers")
    hub.repos["org/two"] = FakeRepo({"sub/B-Q8_0.gguf": b"b" * 5000})

    place = official.hf_hub_download(
        "org/two", "sub/B-Q8_0.gguf", cache_dir=settings.cache, endpoint=hub.url, token=False
    )

    assert find(ModelName("org/two"), settings).paths == (Path(place),)
    assert pull(ModelName("org/two"), settings).fetched == 0


def test_older_snapshots_count_too(make: Make, settings: HubSettings) -> None:
    """What only an older state has is found; of a file in both the newer one is."""
    make("org/one", {"A-Q4_K_M.gguf": b"old", "A-Q8_0.gguf": b"b"}, commit=OTHER)
    repo = make("org/one", {"A-Q4_K_M.gguf": b"new"}, ref="main")

    assert find(ONE, settings).paths[0].read_bytes() == b"new"
    assert find(parse_name("org/one:Q8_0"), settings).commit == OTHER
    assert find(parse_name(f"org/one@{OTHER}:Q4_K_M"), settings).paths[0].read_bytes() == b"old"
    assert len(models_of(repo)) == 2
    with pytest.raises(NotPulledError):
        find(parse_name("org/one@v1"), settings)


def test_what_vanishes_meanwhile_is_passed_over(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process removes a snapshot, or finishes a download, while this one looks."""
    make("org/one", {"A.gguf": b"old"}, commit=OTHER)
    repo = make("org/one", {"A.gguf": b"new"})
    scan = os.scandir

    def late(path: Path) -> list[os.DirEntry[str]]:
        entries = list(scan(path))
        os.rename(repo.snapshots / OTHER, repo.folder / "gone")
        return entries

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", late)
        assert repo.commits() == [COMMIT]
    monkeypatch.setattr(repo, "parts", lambda: [repo.part("ab" * 32)])
    assert repo.unfinished() == 0


def test_what_is_not_there(make: Make, settings: HubSettings) -> None:
    """The message says how to get it, and what of it is there."""
    repo = make("org/one", {"A-Q8_0.gguf": b"b", "A-Q5_0.gguf": b"c"}, ref="main")

    with pytest.raises(NotPulledError, match="get it with: triplepoint pull org/none:Q4_0"):
        find(parse_name("org/none:Q4_0"), settings)
    with pytest.raises(NotPulledError, match="triplepoint pull org/one:Q4_0"):
        find(parse_name("org/one:Q4_0"), settings)
    with pytest.raises(ChoiceError, match="has no Q4_K_M"):
        find(ONE, settings)
    repo.part("ab" * 32).write_bytes(b"x" * 5000)
    with pytest.raises(NotPulledError, match=r"5\.0 kB of an unfinished download"):
        find(parse_name("org/one:Q4_0"), settings)
    (repo.snapshots / COMMIT / "A-Q8_0.gguf").resolve().unlink()
    assert [str(m.name) for m in models_of(repo)] == ["org/one:Q5_0"]


def test_a_projector_alone_is_no_model(make: Make, settings: HubSettings) -> None:
    """The model can still be pulled, and is offered; it is not said that there is no file."""
    make("org/one", {"mmproj-F16.gguf": b"p"}, ref="main")

    with pytest.raises(NotPulledError, match="get it with: triplepoint pull org/one"):
        find(ONE, settings)
    assert find(parse_name("org/one:mmproj"), settings).variant.extra


def test_the_way_to_get_a_revision_names_it(settings: HubSettings) -> None:
    """An alias means the newest state, so it stands for no other."""
    file = "Qwen/Qwen3-4B-GGUF:Qwen3-4B-Q4_K_M.gguf"
    with pytest.raises(NotPulledError, match=r"get it with: triplepoint pull qwen3:4b$"):
        find(parse_name(file), settings)
    old = file.replace(":", "@v1.0:")
    with pytest.raises(NotPulledError, match=f"get it with: triplepoint pull {old}$"):
        find(parse_name(old), settings)


def test_of_models_that_lack_shards_the_newest_counts(make: Make) -> None:
    """What an interrupted update brought is not hidden by what one before it left."""
    names = [f"S-Q8_0-{n:05}-of-00003.gguf" for n in (1, 2, 3)]
    old = make("org/one", {names[0]: b"old"}, commit=OTHER)
    os.utime(old.snapshots / OTHER, (1000, 1000))
    repo = make("org/one", {names[0]: b"new", names[1]: b"2"})
    (found,) = models_of(repo)
    assert (found.commit, len(found.paths)) == (COMMIT, 2)

    assert remove(repo, [found], unfinished=True) == 3 + 3 + 1
    assert not repo.folder.exists()


def test_a_damaged_file_is_refused(
    make: Make, settings: HubSettings, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contents are checked against the blob's name: once, and again after a write.

    Noting the use, which sets the time of status change, is no write.
    """
    monkeypatch.setattr(filehash, "_SETTLED_NS", 0)
    monkeypatch.setattr(filehash, "_RECENT_NS", 0)
    repo = make("org/one", {"A.gguf": b"a" * 1000}, ref="main")
    blob = repo.snapshots / COMMIT / "A.gguf"
    for checks in (1, 0):
        recorder.files.clear()
        find(ONE, settings, recorder)
        assert recorder.files == [("checking A.gguf", 1000)] * checks

    blob.resolve().write_bytes(b"b" * 1000)
    with pytest.raises(ModelError, match="is damaged: its hash is not"):
        find(ONE, settings)


def test_use_is_noted(make: Make, settings: HubSettings) -> None:
    """The time of access is set, as other tools read it; the time of writing is not."""
    repo = make("org/one", {"A.gguf": b"a"}, ref="main")
    blob = (repo.snapshots / COMMIT / "A.gguf").resolve()
    os.utime(blob, (1000, 1000))

    find(ONE, settings)

    assert blob.stat().st_atime > 1_000_000
    assert blob.stat().st_mtime == 1000


def test_odd_folders_are_passed_over(make: Make, settings: HubSettings, tmp_path: Path) -> None:
    """Files that are no repositories, datasets and links out of the cache are no models."""
    make("org/one", {"A.gguf": b"a"}, ref="main")
    for name in ("datasets--a--b", "models--", "models--a--..", "models--a", "blobs"):
        (settings.cache / name).mkdir()
    (settings.cache / "models--a--file").write_text("x")
    (tmp_path / "secret.gguf").write_bytes(b"s")
    repo = CachedRepo(settings.cache, "org/one")
    (repo.snapshots / ("e" * 40)).symlink_to(tmp_path)

    assert [one.repo for one in cached_repos(settings.cache)] == ["org/one"]
    assert repo.commits() == [COMMIT]
    assert list(cached_repos(tmp_path / "none")) == []


def test_an_engine_loads_by_name(
    hub: FakeHub, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Engine.load("org/nano")` is the file that was pulled; a path of that name comes first."""
    hub.repos["org/nano"] = FakeRepo({"nano-Q8_0.gguf": NANO.read_bytes()})
    monkeypatch.setenv("HF_HUB_CACHE", str(settings.cache))
    with pytest.raises(ModelError, match="triplepoint pull org/nano"):
        Engine.load("org/nano")
    pulled = pull(ModelName("org/nano"), settings)

    assert resolve_model("org/nano:Q8_0") == pulled.paths[0]
    monkeypatch.chdir(settings.cache.parent)
    Path("org").mkdir()
    shutil.copy(NANO, "org/nano")
    assert resolve_model("org/nano") == Path("org/nano")


# --- removing


def test_one_of_two_models_goes(make: Make, settings: HubSettings) -> None:
    """The others of the repository stay, and so does what shares a blob with them."""
    repo = make("org/one", {"A-Q4_K_M.gguf": b"aa", "A-Q8_0.gguf": b"bbb", "README.md": b"r"})
    make("org/one", {"copy.gguf": b"aa"}, commit=OTHER)
    before = tree(repo.folder)
    models = {one.variant.name: one for one in models_of(repo)}

    assert remove(repo, [models["A-Q8_0.gguf"]], unfinished=False) == 3
    gone = {Path(name).name for name in before - tree(repo.folder)}
    assert gone == {"A-Q8_0.gguf", hashlib.sha256(b"bbb").hexdigest()}
    assert remove(repo, [models["A-Q4_K_M.gguf"]], unfinished=False) == 0
    assert models["copy.gguf"].paths[0].read_bytes() == b"aa"


def test_a_shared_blob_stays(make: Make) -> None:
    """Contents go with the last link to them."""
    repo = make("org/one", {"A-Q4_K_M.gguf": b"same", "B-Q8_0.gguf": b"same"}, ref="main")
    one, two = models_of(repo)

    assert remove(repo, [one], unfinished=False) == 0
    assert two.paths[0].read_bytes() == b"same"
    assert remove(repo, [two], unfinished=False) == 4
    assert not repo.folder.exists()


def test_all_snapshots_of_a_model_go(make: Make) -> None:
    """A repository of which nothing is left leaves nothing behind."""
    make("org/one", {"A.gguf": b"same"}, commit=OTHER)
    repo = make("org/one", {"A.gguf": b"same"}, ref="main")
    (repo.folder / ".no_exist" / COMMIT).mkdir(parents=True)

    assert remove(repo, models_of(repo), unfinished=True) == 4
    assert not repo.folder.exists()


def test_older_states_go_with_it(make: Make) -> None:
    """With a model its older states go; with a commit only what is of that commit."""
    make("org/one", {"A.gguf": b"older", "B.gguf": b"bb"}, commit=OTHER)
    repo = make("org/one", {"A.gguf": b"new"}, ref="main")
    (old,) = (m for m in models_of(repo, OTHER) if m.variant.name == "A.gguf")

    assert remove(repo, [old], unfinished=False) == 5
    make("org/one", {"A.gguf": b"older"}, commit=OTHER)
    (new,) = (m for m in models_of(repo) if m.variant.name == "A.gguf")
    assert new.paths[0].read_bytes() == b"new"
    assert remove(repo, [new], unfinished=False) == 5 + 3
    assert [m.variant.name for m in models_of(repo)] == ["B.gguf"]


def test_other_files_of_the_repository_stay(make: Make) -> None:
    """What is no model was pulled by someone else for something else."""
    repo = make("org/one", {"A.gguf": b"a", "config.json": b"{}"}, ref="main")

    remove(repo, models_of(repo), unfinished=False)

    assert {Path(name).name for name in tree(repo.folder)} == {
        "config.json", hashlib.sha256(b"{}").hexdigest(), "main",
    }  # fmt: skip


def test_unfinished_downloads_go_with_the_repository(make: Make) -> None:
    """Not with one of its models."""
    repo = make("org/one", {"A-Q8_0.gguf": b"a", "B-Q4_0.gguf": b"b"}, ref="main")
    part = repo.part("ab" * 32)
    part.write_bytes(b"1234")
    one, two = models_of(repo)

    remove(repo, [one], unfinished=False)
    assert part.exists()
    assert remove(repo, [two], unfinished=True) == 5
    assert not repo.folder.exists()


def test_a_pull_in_progress_is_waited_for_aloud(make: Make) -> None:
    """Its part is locked for as long as it comes, which may be hours: that is said."""
    repo = make("org/one", {}, ref="")
    repo.make()
    part = repo.part("ab" * 32)
    part.write_bytes(b"1234")
    said, free = list[str](), threading.Event()

    def note(text: str) -> None:
        said.append(text)
        free.set()

    def pulling(locked: threading.Event) -> None:
        with repo.lock("ab" * 32, lambda: None):
            locked.set()
            free.wait(10)

    locked = threading.Event()
    other = threading.Thread(target=pulling, args=(locked,))
    other.start()
    assert locked.wait(10)
    assert remove(repo, [], unfinished=True, note=note) == 4
    other.join()
    assert said == ["waiting for another process that is pulling a file of org/one"]


def test_nothing_outside_is_touched(make: Make, settings: HubSettings, tmp_path: Path) -> None:
    """Links that lead elsewhere go; what they lead to stays, whatever they are called."""
    outside = tmp_path / "mine"
    outside.mkdir()
    mine = [outside / "x.gguf", outside / hashlib.sha256(b"z").hexdigest()]
    for path in mine:
        path.write_bytes(b"z")
    repo = make("org/one", {"A.gguf": b"a"}, ref="main")
    snapshot = repo.snapshots / COMMIT
    (snapshot / "B.gguf").symlink_to(mine[0])
    (snapshot / "folder").symlink_to(outside)
    # A blob folder that somebody put elsewhere.
    other = make("org/two", {"C.gguf": b"z"}, ref="main")
    shutil.rmtree(other.blobs)
    other.blobs.symlink_to(outside)

    remove(repo, models_of(repo), unfinished=True)
    remove(other, models_of(other), unfinished=True)

    assert all(path.read_bytes() == b"z" for path in mine)
    assert not (snapshot / "B.gguf").is_symlink()


def test_the_store_that_repositories_share(make: Make, settings: HubSettings) -> None:
    """Contents that `huggingface_hub` shares among repositories go with the last of them."""
    stored = settings.cache / "blobs" / "ab" / ("ab" * 32)
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"shared")
    repos = []
    for name in ("org/one", "org/two"):
        repo = make(name, {"A.gguf": b"shared"}, ref="main")
        blob = repo.blobs / hashlib.sha256(b"shared").hexdigest()
        blob.unlink()
        blob.symlink_to(os.path.relpath(stored, blob.parent))
        repos.append(repo)

    assert remove(repos[0], models_of(repos[0]), unfinished=True) == 0
    assert find(ModelName("org/two"), settings).paths[0].read_bytes() == b"shared"
    assert remove(repos[1], models_of(repos[1]), unfinished=True) == 6
    assert not stored.exists()


# --- facts


@pytest.mark.slow
def test_facts_of_nano() -> None:
    """What `show` prints is what the file has; the memory is what the engine takes."""
    facts = read_model_info(NANO)

    assert (facts.architecture, facts.quant, facts.context) == ("qwen3", "Q8_0", 4096)
    assert sum(share.nbytes for share in facts.types.values()) < facts.nbytes == NANO.stat().st_size
    assert facts.template
    assert facts.problems == ()
    assert facts.memory is not None
    with Engine.load(NANO, threads=1) as engine:
        assert facts.parameters == engine.model.parameters
        packed = sum(m.nbytes for m in engine.loaded.network.matrices)
        assert facts.memory.weights == packed
        for kv in ("bf16", "k16v8", "q8", "f32"):
            grown = facts.memory.total(1000, kv) - facts.memory.total(0, kv)
            assert grown == 1000 * facts.memory.kv_token[kv]
        assert facts.memory.kv_token["bf16"] == engine.loaded.cost.kv_bytes


@pytest.mark.parametrize("name", REFUSED)
def test_a_draft_model_is_told_apart(tmp_path: Path, name: str) -> None:
    """A file that only drafts for another model says so, and what to load in its place."""
    path = tmp_path / "draft.gguf"
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", name)

    problems = read_model_info(path).problems
    with pytest.raises(UnsupportedModelError) as caught:
        Engine.load(path)

    for said in (problems[0], str(caught.value)):
        assert f"architecture '{name}' holds no model but one that drafts for another" in said
        assert said.endswith("load that other model itself: it drafts from its context")


def test_every_problem_is_named(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    """Architecture, types and tokenizer are refused by name, all at once."""
    with GGUFWriter(tmp_path / "a.gguf") as writer:
        writer.add("general.architecture", "mamba")
        writer.add("tokenizer.ggml.model", "runes")
        writer.declare("token_embd.weight", (2, 256), GGMLType.TQ2_0)
        writer.write("token_embd.weight", np.zeros(132, np.uint8))

    problems = read_model_info(tmp_path / "a.gguf").problems

    assert [one.split("; ")[0] for one in problems] == [
        "the architecture 'mamba' is not supported",
        "weights in TQ2_0 have no kernel",
        "the tokenizer model 'runes' is not supported (tokenizer.ggml.model)",
    ]
    # What only the forward pass asks for is found too.
    write_tiny(tmp_path / "b.gguf", "q8_0", without=["blk.1.attn_k.weight"])
    (problem,) = read_model_info(tmp_path / "b.gguf").problems
    assert "blk.1.attn_k.weight" in problem
    (tmp_path / "c.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="version"):
        read_model_info(tmp_path / "c.gguf")


@pytest.mark.parametrize(
    ("label", "runs"),
    [
        ("Q4_K_M", True),
        ("UD-Q4_K_XL", True),
        ("Q8_0", True),
        ("F16", True),
        ("", True),
        ("Q8", True),
        ("IQ1_S", True),
        ("UD-IQ2_M", True),
        ("TQ1_0", False),
        ("MXFP4_MOE", True),
        ("TQ2_0", False),
    ],
)
def test_quantizations_that_cannot_be_run(label: str, runs: bool) -> None:
    """A name that speaks of a type without kernels is refused before a download."""
    assert (unsupported_quant(label) is None) is runs


def test_shards_are_found_and_checked(
    tiny_model: Callable[[str], Path], hub: FakeHub, settings: HubSettings, tmp_path: Path
) -> None:
    """A split model is pulled, found and read as one; a part that is gone makes it no model."""
    paths = split_gguf(tiny_model("q4_0"), tmp_path, "tiny-Q4_0", tensors=14)
    hub.repos["org/tiny"] = FakeRepo({f"sub/{path.name}": path.read_bytes() for path in paths})
    pulled = pull(ModelName("org/tiny"), settings)

    facts = read_model_info(find(ModelName("org/tiny"), settings).paths[0])
    assert (facts.files, facts.nbytes) == (3, sum(p.stat().st_size for p in paths))
    pulled.paths[1].unlink()
    with pytest.raises(NotPulledError):
        find(ModelName("org/tiny"), settings)
    assert pull(ModelName("org/tiny"), settings).fetched == 0
    assert find(ModelName("org/tiny"), dataclasses.replace(settings, offline=True))


def test_a_ref_takes_the_place_of_those_in_its_way(settings: HubSettings) -> None:
    """A branch `x` that became `x/y`, and back: the pull is not lost for it."""
    repo = CachedRepo(settings.cache, "org/one")
    for revision in ("x", "x/y", "x/y/z", "x"):
        repo.set_ref(revision, COMMIT)
        refs = repo.folder / "refs"
        assert [path.relative_to(refs) for path in refs.rglob("*") if path.is_file()] == [
            Path(revision)
        ]
        assert (refs / revision).read_text() == COMMIT
