"""Settings that outlive a command: `config.toml` in the user's configuration folder.

    model = "qwen3:4b"
    threads = 4
    trace_keep_days = 30

A setting is what the command line says, else the environment, else this file, else built in. Keys
are top-level, one a line: a line can then be replaced, or added at the end.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arguments import open_regular, user_folder
from ..errors import ModelError, SettingError
from ..jit.kv_formats import KV_FORMATS
from .files import write_file

MODEL = "TRIPLEPOINT_MODEL"
PACKED = "TRIPLEPOINT_CACHE_PACKED_WEIGHTS"
BUILT_IN = "nano"
MAX_BYTES = 1 << 20  # of the file


def _are_groups(value: list[Any]) -> bool:
    from ..tools.groups import GROUPS  # most people have no such file, and `--help` must be instant

    return all(one in [*GROUPS] for one in value)


def _is_limit(value: object) -> bool:
    from ..traces.retention import is_limit

    return is_limit(value)


KEYS: dict[str, tuple[str, str, tuple[type, ...], Callable[[Any], object]]] = {
    "model": (BUILT_IN, 'a quoted name, such as "qwen3:4b"', (str,), str.strip),
    "tools": ("none", 'a list of "find", "edit", "net" and "exec"', (list,), _are_groups),
    "threads": ("automatic", "a whole number from 1 to 256", (int,), range(1, 257).__contains__),
    "kv": ("bf16", '"bf16", "k16v8", "q8" or "f32"', (str,), KV_FORMATS.__contains__),
    "cache_packed_weights": ("true", "true or false", (bool,), lambda _: True),
    "temperature": ("the model's", "a number from 0 to 100", (int, float), lambda t: 0 <= t <= 100),
    "trace": ("true", "true or false", (bool,), lambda _: True),
    "trace_keep_days": ("no limit", "a whole number from 1 to 9999", (int,), lambda n: 0 < n < 1e4),
    "trace_keep_bytes": ("1GB", 'a size such as "500MB", or "off"', (int, str), _is_limit),
}
"""For each key: its default, and the valid values as text, as types and as a test."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of a setting, and its source."""

    value: Any
    source: str

    @property
    def is_built_in(self) -> bool:
        """Return whether the value is the built-in default."""
        return self.source == "built in"


def config_path() -> Path:
    """Return the path of the settings file, which may not exist."""
    return user_folder("config") / "config.toml"


def default_model(environ: Mapping[str, str] = os.environ) -> Setting:
    """Return the default model: of the environment, the settings file, or built in.

    Raises:
        SettingError: the file cannot be read, or says something else.
    """
    if chosen := environ.get(MODEL):
        return Setting(chosen, MODEL)
    return read_settings().get("model") or Setting(BUILT_IN, "built in")


def keeps_packed_weights(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether packed weights are kept on disk unless a caller decides it.

    Raises:
        SettingError: the environment or the settings file says neither yes nor no.
    """
    if (switch := environ.get(PACKED, "on")) not in ("on", "off"):
        raise SettingError(f"{PACKED} must be on or off, not {switch!r}")
    found = read_settings().get("cache_packed_weights")
    return switch == "on" and (found is None or found.value)


def read_settings() -> dict[str, Setting]:
    """Return the settings of the file, by key; empty if there is no file.

    Raises:
        SettingError: names file, line and what is allowed where the file says something else.
    """
    path = config_path()
    text = _read(path) or ""
    found = _parsed(path, text) if text else {}
    return {
        key: Setting(value, f"{path}, line {_line_of(text, key)}") for key, value in found.items()
    }


def keep_model(name: str) -> Path:
    """Write the default model into the settings file, keep its other lines, and return its path.

    Raises:
        SettingError: the file cannot be read, or is not understood; or it would not be
            afterwards.
        ModelError: it cannot be written.
    """
    path = config_path()
    text = _read(path) or ""
    wanted = {**_parsed(path, text), "model": name}
    try:
        name.encode()
    except UnicodeEncodeError as error:  # a file's name from a system with other characters
        shown = name.encode("utf-8", "backslashreplace").decode()
        raise SettingError(f"the name {shown} is not UTF-8 text; rename the file") from error
    # JSON lets one control character stand that TOML does not take.
    quoted = json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
    lines = text.splitlines()
    at = _line_of(text, "model")
    lines[at - 1 : at] = [f"model = {quoted}"]
    changed = "\n".join(lines) + "\n"
    found: object = None
    with suppress(SettingError):
        found = _parsed(path, changed)
    if found != wanted:  # a value over several lines, say
        raise SettingError(
            f"{path}, line {at}: cannot replace what is set there; edit the file to say: "
            f"model = {quoted}"
        )
    try:
        # What a link leads to is written: the file may be kept with others, elsewhere.
        write_file(Path(os.path.realpath(path)), changed)
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _read(path: Path) -> str | None:
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:  # a part would be written back as the whole
            raise OSError(errno.EFBIG, f"it has more than {MAX_BYTES:,} bytes")
        return data.decode("utf-8-sig")  # some editors begin with a mark
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:  # it may be in the home of another user, after su or sudo
        raise SettingError(
            f"cannot read {path}: {error.strerror}; name another folder of settings with "
            "XDG_CONFIG_HOME, or make it readable"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingError(f"cannot read {path}: {why}; fix or remove it") from error


def _parsed(path: Path, text: str) -> dict[str, Any]:
    """Parse the settings file and check each key and value."""
    import tomllib  # most people have no such file

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f'{path}: {error}; a valid line is: model = "qwen3:4b"') from error
    for key, value in found.items():
        where = f"{path}, line {_line_of(text, key)}"
        if key not in KEYS:
            raise SettingError(f"{where}: no such setting: {key!r}; known: {', '.join(KEYS)}")
        _, wants, types, fits = KEYS[key]
        if type(value) not in types or not fits(value):
            raise SettingError(f"{where}: {key} must be {wants}, not {value!r:.80}")
    return found


def _line_of(text: str, key: str) -> int:
    """Return the line that sets `key`, from 1; if there is none, the one after the last."""
    lines = text.splitlines()
    form = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    return next((n for n, line in enumerate(lines, 1) if form.match(line)), len(lines) + 1)
