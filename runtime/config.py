"""Settings that outlive a command: `config.toml` in the user's configuration folder.

    model = "qwen3:4b"

A setting is what the command line says, else the environment, else this file, else built in.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..arguments import open_regular, user_folder
from ..errors import ModelError, SettingError
from .files import write_file

MODEL = "TRIPLEPOINT_MODEL"
BUILT_IN = "nano"
_KEYS = ("model",)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, and where it comes from."""

    value: str
    source: str

    @property
    def is_built_in(self) -> bool:
        """Whether nobody chose it."""
        return self.source == "built in"


def config_path() -> Path:
    """Where the file is, or would be."""
    return user_folder("config") / "config.toml"


def default_model(environ: Mapping[str, str] = os.environ) -> Setting:
    """The model that is taken where none is named.

    Raises:
        SettingError: the file cannot be read, or says something else.
    """
    if chosen := environ.get(MODEL):
        return Setting(chosen, MODEL)
    path = config_path()
    text = _read(path)
    if text is None or (model := _parsed(path, text)) is None:
        return Setting(BUILT_IN, "built in")
    return Setting(model, f"{path}, line {_line_of(text, 'model')}")


def keep_model(name: str) -> Path:
    """Write the default model into the file, and leave its other lines as they are; the file.

    Raises:
        SettingError: the file cannot be read, or is not understood; or it would not be
            afterwards.
        ModelError: it cannot be written.
    """
    path = config_path()
    text = _read(path) or ""
    _parsed(path, text)
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
    if not _says(changed, name):  # a value over several lines, say
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
            return file.read(1 << 20).decode("utf-8-sig")  # some editors begin with a mark
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


def _parsed(path: Path, text: str) -> str | None:
    """The model that the file names, None if it names none."""
    import tomllib  # most people have no such file

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f'{path}: {error}; a valid line is: model = "qwen3:4b"') from error
    for key in found:
        if key not in _KEYS:
            where = f"{path}, line {_line_of(text, key)}"
            raise SettingError(f"{where}: no such setting: {key!r}; known: {', '.join(_KEYS)}")
    model = found.get("model")
    if model is not None and not (isinstance(model, str) and model.strip()):
        where = f"{path}, line {_line_of(text, 'model')}"
        raise SettingError(f'{where}: model must be a quoted name, such as "qwen3:4b"')
    return model


def _says(text: str, name: str) -> bool:
    """Whether `text` is a file that names this model, and no more."""
    import tomllib

    try:
        return tomllib.loads(text) == {"model": name}
    except tomllib.TOMLDecodeError:
        return False


def _line_of(text: str, key: str) -> int:
    """The line that sets `key`, from 1; of a key that is not there the one after the last."""
    lines = text.splitlines()
    form = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    return next((n for n, line in enumerate(lines, 1) if form.match(line)), len(lines) + 1)
