"""`config.toml`: what it may say, and what is said where it says something else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import get_args

import pytest

from triplepoint.errors import SettingError
from triplepoint.jit.kernels.kvcache import KVFormat
from triplepoint.runtime.config import (
    KEYS,
    PACKED,
    config_path,
    default_model,
    keep_model,
    keeps_packed_weights,
    read_settings,
)
from triplepoint.tools.groups import GROUPS


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration is the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def _write(text: str) -> None:
    config_path().parent.mkdir(parents=True)
    config_path().write_text(text)


def test_who_wins() -> None:
    """The environment before the file, the file before what is built in."""
    assert default_model({}).value == "nano"
    assert default_model({}).is_built_in

    path = keep_model("qwen3:4b")

    found = default_model({})
    assert (found.value, found.source) == ("qwen3:4b", f"{path}, line 1")
    assert default_model({"TRIPLEPOINT_MODEL": "other"}).value == "other"
    assert default_model({"TRIPLEPOINT_MODEL": ""}).value == "qwen3:4b"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_packed_weights_are_kept_unless_someone_objects() -> None:
    """The environment and the file may each say no; what is neither on nor off is refused."""
    assert keeps_packed_weights({})
    assert not keeps_packed_weights({PACKED: "off"})
    with pytest.raises(SettingError, match=f"{PACKED} must be on or off, not 'no'"):
        keeps_packed_weights({PACKED: "no"})
    _write("cache_packed_weights = false")
    assert not keeps_packed_weights({})
    assert not keeps_packed_weights({PACKED: "on"})


def test_values_have_types() -> None:
    """What may be set is what the code takes, and each value says its line."""
    text = """tools = ["find", "edit", "net", "exec"]
threads = 2
kv = "q8"
cache_packed_weights = false
temperature = 0
trace = false
trace_keep_days = 30
trace_keep_bytes = 12_000_000_000
"""
    _write(text)
    found = read_settings()

    assert [found[name].value for name in KEYS if name != "model"] == [
        list(GROUPS), 2, "q8", False, 0, False, 30, 12 * 10**9,
    ]  # fmt: skip
    assert found["kv"].source == f"{config_path()}, line 3"
    keep_model("qwen3:4b")
    assert config_path().read_text() == f'{text}model = "qwen3:4b"\n'
    for kv in get_args(KVFormat):
        config_path().write_text(f'kv = "{kv}"')
        assert read_settings()["kv"].value == kv


def test_a_byte_order_mark_is_no_setting() -> None:
    """Some editors begin a file with one."""
    config_path().parent.mkdir(parents=True)
    config_path().write_bytes(b'\xef\xbb\xbfmodel = "qwen3:4b"\n')
    assert default_model({}).value == "qwen3:4b"
    keep_model("nano")
    assert default_model({}).value == "nano"


@pytest.mark.parametrize("name", ["plain", 'with "quotes"', "C:\\back\\slash", "Modèle", "del\x7f"])
def test_names_survive(name: str) -> None:
    """Whatever a model is called, what is written is read again."""
    keep_model("another")
    keep_model(name)

    assert default_model({}).value == name


def test_comments_stay() -> None:
    """The line that sets the model is replaced, and no other."""
    _write('# mine\n\nmodel = "a"  # old\n# end\n')

    keep_model("b")

    assert config_path().read_text() == '# mine\n\nmodel = "b"\n# end\n'


@pytest.mark.parametrize(
    "text",
    ['model = """\nqwen3:4b"""\n', '"mod\\u0065l" = "x"\n', '# a\u2028model = 3\nmodel = "x"\n'],
)
def test_a_file_is_not_made_unreadable(text: str) -> None:
    """What is set in a way that a line cannot replace is left alone, and the line is given."""
    _write(text)

    with pytest.raises(SettingError, match=r'cannot replace what is set .*: model = "nano"'):
        keep_model("nano")

    assert config_path().read_text() == text


def test_a_name_that_is_no_text() -> None:
    """A path with bytes that are not UTF-8 cannot be written down, and is said to be that."""
    with pytest.raises(SettingError, match=r"caf\\udce9\.gguf is not UTF-8 text; rename the file"):
        keep_model("/m/caf\udce9.gguf")
    assert not config_path().exists()


def test_a_link_stays(tmp_path: Path) -> None:
    """The file may be kept elsewhere, with others: that one is written."""
    _write("# mine\n")
    kept = tmp_path / "dotfiles.toml"
    config_path().rename(kept)
    config_path().symlink_to(kept)

    keep_model("b")

    assert config_path().is_symlink()
    assert kept.read_text() == '# mine\nmodel = "b"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = nano", "line 1.*a valid line is: model = "),
        ('\nmodle = "nano"', "line 2: no such setting: 'modle'; known: model"),
        ("# x\n[model]\nname = 1", "line 2: model must be a quoted name"),
        ("model = 3", "line 1: model must be a quoted name"),
        ('tools = "find"', 'line 1: tools must be a list of "find", "edit", "net" and "exec", not'),
        ('tools = ["shell"]', "line 1: tools must be a list of"),
        ("tools = [{}]", "line 1: tools must be a list of"),
        ("threads = 0", "line 1: threads must be a whole number from 1 to 256, not 0"),
        ("threads = true", "line 1: threads must be a whole number"),
        ("threads = 2.0", "line 1: threads must be a whole number"),
        ('# x\nkv = "q4"', 'line 2: kv must be "bf16", "k16v8", "q8" or "f32", not \'q4\''),
        ("temperature = nan", "line 1: temperature must be a number from 0 to 100"),
        ("temperature = -1", "line 1: temperature must be a number from 0 to 100"),
        ("trace = 0", "line 1: trace must be true or false"),
        ("[trace]\nkeep_days = 3", "line 1: trace must be true or false"),
        ("trace_keep_days = 0.5", "line 1: trace_keep_days must be a whole number"),
        ('trace_keep_bytes = "much"', "line 1: trace_keep_bytes must be a size such as"),
        ("trace_keep_bytes = -1", "line 1: trace_keep_bytes must be a size such as"),
        ('model = ""', "line 1: model must be a quoted name"),
    ],
)
def test_a_file_that_says_something_else(text: str, message: str) -> None:
    """The error has file, line and remedy; nothing is written over such a file."""
    _write(text)

    with pytest.raises(SettingError, match=message) as caught:
        default_model({})
    assert str(config_path()) in str(caught.value)
    with pytest.raises(SettingError):
        keep_model("nano")
    assert config_path().read_text() == text


def test_a_file_that_cannot_be_read() -> None:
    """A folder of that name, or bytes that are no text, are told as that."""
    config_path().mkdir(parents=True)
    with pytest.raises(SettingError, match=r"cannot read .*config\.toml: Is a directory"):
        default_model({})
    config_path().rmdir()
    config_path().write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="it is not UTF-8 text; fix or remove it"):
        default_model({})


def test_a_home_that_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with HOME=/dev/null: there is no file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null")
    assert default_model({}).is_built_in


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_the_home_of_another_user() -> None:
    """As after `su`, where HOME stays root's: what the file says cannot be known."""
    config_path().parent.mkdir(parents=True, mode=0)
    with pytest.raises(SettingError, match=r"Permission denied; name another .*XDG_CONFIG_HOME"):
        default_model({})


def test_a_file_that_is_too_large() -> None:
    """It is refused whole: what was cut off would be lost when a model is set."""
    text = 'model = "small"\n' + "# comment\n" * 110_000
    config_path().parent.mkdir(parents=True, exist_ok=True)
    config_path().write_text(text)
    for call in (read_settings, lambda: keep_model("nano")):
        with pytest.raises(SettingError, match="more than 1,048,576 bytes; fix or remove it"):
            call()
    assert config_path().read_text() == text
