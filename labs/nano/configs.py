"""Configuration files of many formats, and other text for questions about one line."""

from __future__ import annotations

from dataclasses import dataclass

from .log_texts import event
from .words import Lexicon

KEYS = (
    "port host timeout user password debug level path name version workers retries max_size "
    "log_level database url region mode backend driver interval threads timezone language "
    "max_connections pool_size cache_dir data_dir log_file secret_key bind_address replicas "
    "memory_limit batch_size encoding theme format prefix owner email domain bucket token image "
    "schedule ttl burst rate_limit compression buffer_size keepalive ssl_cert workdir"
)
CONFIG_EXTENSIONS = ("ini", "cfg", "conf", "yaml", "yml", "toml", "json", "env", "properties", "py")
TRUTH = ("true", "false")


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration file and the pairs in it."""

    path: str
    text: str
    pairs: tuple[tuple[str, str], ...]
    places: tuple[int, ...]
    """The line number of each pair."""


def make_config(words: Lexicon, size: int) -> Config:
    """Generate a file of `size` settings; keys are unique and values on their key's line."""
    if words.pool or words.rng.random() < 0.5:
        return _write_config(words, size)
    with words.few(max(4, size)):  # keys that share their parts: db_host, db_port, db_user
        return _write_config(words, size)


def _write_config(words: Lexicon, size: int) -> Config:
    rng = words.rng
    extension = rng.choice(CONFIG_EXTENSIONS)
    whole = extension == "env" and rng.random() < 0.5
    path = words.path(("=.env",) if whole else (extension,))
    style = rng.random()
    pairs: dict[str, str] = {}
    while len(pairs) < size:
        key = _key(words, style)
        if key.lower() not in {known.lower() for known in pairs}:
            pairs[key] = _value(words)
    items = tuple(
        (key.upper().replace("-", "_"), value.capitalize() if value in TRUTH else value)
        if extension == "py"
        else (key.upper().replace("-", "_") if extension == "env" else key, value)
        for key, value in pairs.items()
    )
    lines, places = _lines(words, extension, items)
    return Config(path, "\n".join(lines), items, tuple(places))


def _key(words: Lexicon, style: float) -> str:
    if not words.held_out and words.rng.random() < 0.3:
        return words.rng.choice(KEYS.split())
    if style < 0.6:
        return "_".join(words.word() for _ in range(words.rng.choice((1, 2, 2, 3))))
    return words.identifier()


def _value(words: Lexicon) -> str:
    """Return a value that needs no escape in any format."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.3:
        return words.number()
    if roll < 0.4:
        return rng.choice(TRUTH)
    if roll < 0.6:
        return words.word()
    if roll < 0.7:
        return words.phrase(2, 3)
    if roll < 0.75:
        return f"{words.number()}{rng.choice(('s', 'ms', 'MB', 'GB', 'k', '%', 'm', 'h'))}"
    if roll < 0.8:
        scheme = rng.choice(("https", "https", "http", "postgres", "redis"))
        return f"{scheme}://{words.host()}/{words.word()}"
    return words.value().replace("'", "")


def _bare(value: str) -> bool:
    """Return a number or truth value, unquoted in every format."""
    return value.isdigit() or value.lower() in TRUTH


def _lines(
    words: Lexicon, extension: str, pairs: tuple[tuple[str, str], ...]
) -> tuple[list[str], list[int]]:
    """Return the file's lines, and the line number of each pair."""
    rng = words.rng
    if extension == "json":
        indent = rng.choice(("  ", "    ", "\t"))
        rows = [f'{indent}"{k}": {v if _bare(v) else f"{chr(34)}{v}{chr(34)}"}' for k, v in pairs]
        rows = ["{", *(row + "," for row in rows[:-1]), rows[-1], "}"]
        return rows, list(range(2, len(rows)))
    join = {
        "yaml": ": ",
        "yml": ": ",
        "toml": " = ",
        "env": "=",
        "properties": rng.choice(("=", " = ")),
        "py": " = ",
    }.get(extension, rng.choice(("=", " = ", ": ")))
    quoted = extension in ("toml", "py") or (
        extension in ("yaml", "yml", "env") and rng.random() < 0.3
    )
    sections = extension not in ("env", "py", "properties") and rng.random() < 0.5
    nested = extension in ("yaml", "yml")
    sign = {"py": "#", "ini": ";"}.get(extension, "#")
    lines: list[str] = []
    places: list[int] = []
    if sections:
        lines.append(f"{words.word()}:" if nested else f"[{words.word()}]")
    for number, (key, value) in enumerate(pairs):
        if number and rng.random() < 0.12:
            if sections:
                lines.append(f"{words.word()}:" if nested else f"[{words.word()}]")
            else:
                lines.append(rng.choice(("", f"{sign} {words.phrase(1, 4)}")))
        shown = f'"{value}"' if quoted and not _bare(value) else value
        lines.append(f"{'  ' if sections and nested else ''}{key}{join}{shown}")
        places.append(len(lines))
    return lines, places


def any_line(words: Lexicon) -> str:
    """Return a line of some file: prose, code, a setting, a row of a table."""
    rng = words.rng
    kind = rng.randrange(11)
    if kind > 8:
        return words.sentence()
    if kind == 0:
        return words.phrase(2, 8).capitalize() + rng.choice((".", "", "!", ":"))
    if kind == 1:
        return f"{' ' * rng.choice((0, 4, 8))}{words.identifier()} = {words.value()}"
    if kind == 2:
        return f"{words.word()}: {words.value()}"
    if kind == 3:
        return f"{' ' * rng.choice((0, 4))}def {words.word()}({words.word()}, {words.word()}):"
    if kind == 4:
        return ",".join(words.word() for _ in range(rng.randint(2, 5)))
    if kind == 5:
        return f"{rng.choice(('# ', '## ', '- ', '* ', '// ', '1. '))}{words.phrase(1, 6)}"
    if kind == 6:
        return f"{' ' * rng.choice((0, 2, 4))}return {words.identifier()}({words.word()})"
    if kind == 7:
        return (
            f"20{rng.randrange(10, 30)}-0{rng.randint(1, 9)}-{rng.randint(10, 28)} {event(words)}"
        )
    return words.phrase(2, 9)
