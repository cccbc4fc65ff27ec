"""Names of models, files of a repository, and what the environment says."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint.errors import ModelError
from triplepoint.runtime.hub.names import ModelName, is_hub_name, parse_name
from triplepoint.runtime.hub.progress import size_text
from triplepoint.runtime.hub.settings import HubSettings
from triplepoint.runtime.hub.variants import (
    ChoiceError,
    RepoFile,
    Variant,
    choose,
    listing,
    quant_of,
    variants_of,
)

# --- names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen3-4B-GGUF", ModelName("Qwen/Qwen3-4B-GGUF")),
        ("Qwen/Qwen3-4B-GGUF:Q8_0", ModelName("Qwen/Qwen3-4B-GGUF", selector="Q8_0")),
        ("a/b:sub/x.gguf", ModelName("a/b", selector="sub/x.gguf")),
        ("a/b@v1.0:q4", ModelName("a/b", "v1.0", "q4")),
        ("hf.co/a/b:Q4_0", ModelName("a/b", selector="Q4_0")),
        ("hf://a/b@refs/pr/2", ModelName("a/b", "refs/pr/2")),
        ("https://huggingface.co/a/b/", ModelName("a/b")),
        ("https://huggingface.co/a/b/tree/main", ModelName("a/b")),
        ("https://huggingface.co/a/b/tree/dev/Q8_0", ModelName("a/b", "dev", "Q8_0")),
        (
            "https://huggingface.co/a/b/resolve/main/x%20y.gguf?download=true",
            ModelName("a/b", selector="x y.gguf"),
        ),
        ("https://huggingface.co/a/b/tree/new%2Fone/Q8_0", ModelName("a/b", "new/one", "Q8_0")),
        ("https://huggingface.co/a/b/tree/refs%2Fpr%2F3", ModelName("a/b", "refs/pr/3")),
        ("huggingface.co/a/b/blob/refs/pr/3/x.gguf", ModelName("a/b", "refs/pr/3", "x.gguf")),
    ],
)
def test_every_form_of_a_name(text: str, name: ModelName) -> None:
    """Names, short addresses and pasted pages mean the same; the short form reads back."""
    assert is_hub_name(text)
    assert parse_name(text) == name
    assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nano", "not a model name"),
        ("a/b/c", "not a model name"),
        ("a--b/c", "not a model name"),
        ("../b", "not a model name"),
        ("a/..", "not a model name"),
        ("a/b:", "not a model name"),
        ("a/b\n", "not a model name"),
        ("a/b@../x", "not the name of a branch"),
        ("a/b@x/", "not the name of a branch"),
        ("https://example.com/a/b", "set HF_ENDPOINT"),
        ("https://huggingface.co.evil.com/a/b", "set HF_ENDPOINT"),
        ("https://huggingface.co/a%2Fb/tree/main", "not a model name"),
        ("https://[huggingface.co/a/b", "set HF_ENDPOINT"),
        ("hf.co/a--b/c/tree/main", "not the name of a repository"),
    ],
)
def test_other_texts_are_no_names(text: str, message: str) -> None:
    """What has no form of a name is refused."""
    with pytest.raises(ModelError, match=message):
        parse_name(text)


def test_paths_are_no_names() -> None:
    """What is written like a path is never taken for a repository."""
    for text in ("http://localhost:8080/v1", "https://example.com/a/b#c", "http://[a/b"):
        assert not is_hub_name(text), text
    for text in ("nano", "x.gguf", "models/x.gguf", "./a/b", "/a/b", "~/a", "a/b/c", "synthetic:a"):
        assert not is_hub_name(text), text
    assert is_hub_name("hf.co/models/x.gguf")


# --- files


@pytest.mark.parametrize(
    ("path", "quant"),
    [
        ("Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"),
        ("model.i1-IQ4_XS.gguf", "IQ4_XS"),
        ("smollm2-135m-q8_0.gguf", "Q8_0"),
        ("UD-Q4_K_XL/Big-UD-Q4_K_XL-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ("Q6_K_L/big.gguf", "Q6_K_L"),
        ("x-fp16.gguf", "F16"),
        ("BF16/x.gguf", "BF16"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("x_Q4_0_4_4.gguf", "Q4_0_4_4"),
        ("x-TQ1_0.gguf", "TQ1_0"),
        ("Llama-3.2-1B-Instruct.gguf", ""),
        ("Q4U-7B.gguf", ""),
    ],
)
def test_quantization_of_a_name(path: str, quant: str) -> None:
    """Files and folders say it in many ways."""
    assert quant_of(path) == quant


def files(*paths: str) -> list[Variant]:
    return variants_of(RepoFile(path, 10 + n, "ab" * 32) for n, path in enumerate(paths))


MANY = files(
    "README.md",
    "B-IQ4_XS.gguf",
    "B-Q4_0.gguf",
    "B-Q4_K_M.gguf",
    "B-UD-Q4_K_XL.gguf",
    "Q8_0/B-Q8_0-00002-of-00002.gguf",
    "Q8_0/B-Q8_0-00001-of-00002.gguf",
    "mmproj-B-F16.gguf",
    "B.imatrix.gguf",
)


def test_variants_are_put_together() -> None:
    """Shards are one model, in order; projectors and such are set aside."""
    assert [v.quant for v in MANY if not v.extra] == [
        "IQ4_XS", "Q4_0", "Q4_K_M", "UD-Q4_K_XL", "Q8_0",
    ]  # fmt: skip
    assert [v.name for v in MANY if v.extra] == ["mmproj-B-F16.gguf", "B.imatrix.gguf"]
    shards = MANY[4]
    assert [f.path[-19:] for f in shards.files] == [
        "-00001-of-00002.gguf"[1:],
        "00002-of-00002.gguf",
    ]
    assert (shards.size, shards.shards, shards.complete) == (10 + 5 + 10 + 6, 2, True)
    assert listing(MANY[:2]) == "IQ4_XS (11 B), Q4_0 (12 B)"
    heads = files("Q-27B-MTP-Q4_K_M.gguf", "mtp-Q-27B-Q8_0.gguf", "MTP/mtp.gguf")
    assert [v.name for v in heads if not v.extra] == ["Q-27B-MTP-Q4_K_M.gguf"]


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        (None, "B-Q4_K_M.gguf"),
        ("Q4_K_M", "B-Q4_K_M.gguf"),
        ("q4_k_m", "B-Q4_K_M.gguf"),
        ("q4_0", "B-Q4_0.gguf"),
        ("UD-Q4_K_XL", "B-UD-Q4_K_XL.gguf"),
        ("q4_k_xl", "B-UD-Q4_K_XL.gguf"),
        ("B-IQ4_XS.GGUF", "B-IQ4_XS.gguf"),
        ("q8_0", "Q8_0/B-Q8_0-00001-of-00002.gguf"),
        ("B-Q8_0-00002-of-00002.gguf", "Q8_0/B-Q8_0-00001-of-00002.gguf"),
        ("Q8_0/B-Q8_0-00001-of-00002.gguf", "Q8_0/B-Q8_0-00001-of-00002.gguf"),
        ("mmproj-B-F16.gguf", "mmproj-B-F16.gguf"),
        ("mmproj", "mmproj-B-F16.gguf"),
    ],
)
def test_selectors(selector: str | None, name: str) -> None:
    """A quantization in any case, a file in any folder, a part of a name."""
    assert choose(MANY, selector, "a/b").name == name


@pytest.mark.parametrize("selector", ["Q4", "Q4_K", "K_M", "Q5_K_M", "x.gguf", "iq4", "4_0"])
def test_nothing_is_guessed(selector: str) -> None:
    """A selector that is only like what there is finds nothing, and lists it."""
    with pytest.raises(ChoiceError, match="a/b has no") as caught:
        choose(MANY, selector, "a/b")
    assert len(caught.value.variants) == 5
    assert not caught.value.fits


def test_several_fit() -> None:
    """Two models of one quantization must be told apart by their files."""
    two = files("A-Q4_K_M.gguf", "B-Q4_K_M.gguf", "B-Q8_0.gguf")
    for selector in (None, "Q4_K_M"):
        with pytest.raises(ChoiceError, match=r"2 files for Q4_K_M; .*:A-Q4_K_M\.gguf") as caught:
            choose(two, selector, "a/b")
        assert caught.value.fits
    assert choose(two, "b-q4_k_m.gguf", "a/b").name == "B-Q4_K_M.gguf"
    assert choose(two, "b-q4_k_m", "a/b").name == "B-Q4_K_M.gguf"


def test_a_single_model_needs_no_name() -> None:
    """Whatever it is quantized to."""
    assert choose(files("A-Q8_0.gguf", "mmproj-x.gguf"), None, "a/b").quant == "Q8_0"
    assert choose(files("model.gguf"), None, "a/b").quant == ""
    with pytest.raises(ModelError, match="no GGUF file"):
        choose(files("a.safetensors"), None, "a/b")


def test_a_shard_is_missing() -> None:
    """Half a model is no model."""
    with pytest.raises(ModelError, match=r"only 1 of 2 parts of B-00002-of-00002\.gguf"):
        choose(files("B-00002-of-00002.gguf"), None, "a/b")


# --- the environment


def test_the_variables_of_hugging_face(tmp_path: Path) -> None:
    """The cache, the token and the endpoint are where its own tools look for them."""

    def read(**environ: str) -> HubSettings:
        return HubSettings.from_environ({"HOME": str(tmp_path), **environ})

    assert read(XDG_CACHE_HOME="/c").cache == Path("/c/huggingface/hub")
    assert read(HF_HOME="/h").cache == Path("/h/hub")
    assert read(HF_HOME="/h", HF_HUB_CACHE="/x").cache == Path("/x")
    assert read().endpoint == "https://huggingface.co"
    assert read(HF_ENDPOINT="http://mirror/").endpoint == "http://mirror"
    for word, offline in (("1", True), ("true", True), ("0", False), ("", False)):
        assert read(HF_HUB_OFFLINE=word).offline is offline
    assert read(HF_HUB_DISABLE_SYMLINKS="1").symlinks is False
    assert read(HF_HUB_DOWNLOAD_TIMEOUT="60").read_s == 60
    assert read(HF_HUB_DOWNLOAD_TIMEOUT="x").read_s == 10
    assert read(HF_HUB_DOWNLOAD_TIMEOUT="inf").read_s == 86400  # sockets take no more

    (tmp_path / "token").write_text(" hf_file\n")
    home = {"HF_HOME": str(tmp_path)}
    assert read(**home).token == "hf_file"
    assert read(**home, HF_TOKEN="hf_env").token == "hf_env"
    assert read(**home, HF_HUB_DISABLE_IMPLICIT_TOKEN="1").token is None
    assert read(HF_HOME="/none").token is None
    assert read(HF_TOKEN="hf_ä").token is None


def test_they_agree_with_the_official_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`huggingface_hub` looks for its cache in the same place."""
    constants = pytest.importorskip(
        "huggingface_hub.constants", reason="huggingface_hub is not installed"
    )

    assert HubSettings.from_environ().cache.name == Path(constants.HF_HUB_CACHE).name == "hub"


def test_sizes() -> None:
    """As on the Hub's pages."""
    shown = [size_text(n) for n in (0, 999, 1000, 12_345, 999_960, 2_497_280_256, 65e9, 123e9)]

    assert shown == ["0 B", "999 B", "1.0 kB", "12.3 kB", "1.0 MB", "2.50 GB", "65.00 GB", "123 GB"]


def test_a_shard_that_its_count_excludes_is_no_part() -> None:
    """Two files of a model of two are not the whole if one of them is the third."""
    (one,) = files("B-Q8_0-00002-of-00002.gguf", "B-Q8_0-00003-of-00002.gguf")
    assert (len(one.files), one.shards, one.complete) == (1, 2, False)
    assert files("B-Q8_0-00003-of-00002.gguf") == []
