"""Settings in the formats of real programs, with comments that name them and keys that repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .configs import make_config
from .log_texts import fill
from .words import Lexicon


@dataclass(frozen=True, slots=True)
class Setting:
    """A key and its value, the number of its line, and what its comment calls it, if anything."""

    key: str
    value: str
    line: int
    said: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration file and what it sets."""

    path: str
    text: str
    items: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Format:
    """How one kind of file is written: its names, its line, and what stands around it."""

    paths: str
    lines: str
    """Ways of writing a setting: {k} and {v}."""
    comment: str = "#"
    sections: str = ""
    """A heading, {w} its name; empty where the format has none."""
    around: str = ""
    """Other lines of such files."""
    style: str = "snake"


FORMATS = (
    Format("yaml|yml|=compose.yaml|=values.yaml", "  {k}: {v}|  {k}: {q}", "#", "{w}:",
           "  - {w}|  {w}:|---", "snake"),
    Format("yaml|yml|=docker-compose.yml", "      {K}: {q}|      - {K}={v}", "#", "  {w}:",
           "    image: {w}:{n}|    environment:|    ports:|services:", "upper"),
    Format("toml|=pyproject.toml|=Cargo.toml", "{k} = {t}", "#", "[{w}]|[{w}.{w}]",
           '{w} = ["{w}", "{w}"]|', "dash"),
    Format("ini|cfg|conf|=my.cnf|=setup.cfg", "{k} = {v}|{k}={v}|{k}: {v}", ";|#", "[{w}]", "|",
           "snake"),
    Format("=.env|env|=.env.local|=prod.env", "{K}={v}|{K}={v}|{K}={q}", "#", "", "|", "upper"),
    Format("conf|=nginx.conf|=default.conf", "    {k} {v};|{k} {v};", "#", "{w} {|location /{w} {",
           "}|    include {p};|", "snake"),
    Format("=Dockerfile|=Containerfile|=Dockerfile.dev", "ENV {K}={v}|ENV {K} {v}|ARG {K}={v}|"
        "{K} {v}", "#",
           "", "RUN {w} {w} {w}|COPY {w} {p}|FROM {w}:{n}|", "upper"),
    Format("sh|=.bashrc|=.profile|=entrypoint|bash", "export {K}={v}|export {K}={q}|{K}={q}", "#",
           "", "set -e|{w} {p}|alias {w}='{w} {w}'|", "upper"),
    Format("service|timer|=override.conf", "{C}={v}", "#|;", "[{W}]", "|", "camel"),
    Format("=sshd_config|=ssh_config|=config|conf", "{C} {v}|    {C} {v}", "#", "Host {w}", "|",
           "camel"),
    Format("properties|=gradle.properties", "{k}={v}|{k} = {v}", "#|!", "", "|", "dots"),
    Format("json|=package.json|=tsconfig.json|=settings.json", '  "{c}": {t},|    "{c}": {t},', "",
           '  "{w}": {', "  },|{|}|", "small"),
    Format("py|=settings.py|=conf.py", "{K} = {t}", "#", "", "import {w}|from {w} import {w}|",
           "upper"),
    Format("js|ts|=vite.config.js", "  {c}: {t},|const {c} = {t};", "//", "", "export default {|}|",
           "small"),
    Format("=Makefile|mk", "{K} := {v}|{K} = {v}|{K} ?= {v}", "#", "", "{w}: {w}|\t{w} {w}|",
           "upper"),
    Format("h|c|=config.h", "#define {K} {v}", "//", "", "#include <{w}.h>|", "upper"),
    Format("tf|tfvars|hcl", "  {k} = {t}|{k} = {t}", "#", 'resource "{w}" "{w}" {', "}|", "snake"),
)  # fmt: skip

USES = (
    'echo "${k}"', '{w} --{w} "${k}"', 'if [ -z "${k}" ]; then', "{w}({k}, {w})", "# {w} {k} {w}",
    "    return {k}", "{w} {w} {k} {w}",
)  # fmt: skip
"""Lines that name a key {k} and set nothing."""
WELL_KNOWN = tuple(
    [
        "port",
        "host",
        "user",
        "listen",
        "server_name",
        "root",
        "timeout",
        "workers",
        "debug",
        "log_level",
        "level",
        "region",
        "image",
        "name",
        "version",
        "url",
        "password",
        "database",
        "replicas",
        "memory",
        "cpus",
        "schedule",
        "retries",
        "interval",
        "path",
        "mode",
        "bind",
        "driver",
        "max_size",
        "client_max_body_size",
        "worker_connections",
        "keepalive_timeout",
        "max_connections",
        "shared_buffers",
        "volumes",
        "environment",
        "endpoint",
        "token",
        "secret",
        "bucket",
        "domain",
        "email",
        "theme",
        "language",
        "timezone",
        "ttl",
        "threads",
        "queue",
        "backend",
    ]
)
"""Keys of real files; the rest are made up."""


def keyed(parts: list[str], style: str) -> str:
    """One key of several words, as the format has it."""
    if style == "upper":
        return "_".join(parts).upper()
    if style == "camel":
        return "".join(part.capitalize() for part in parts)
    if style == "small":
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return {"dots": ".", "dash": "-"}.get(style, "_").join(parts)


def _value(words: Lexicon) -> str:
    rng = words.rng
    roll = rng.random()
    if roll < 0.3:
        return words.number()
    if roll < 0.38:
        return rng.choice(("true", "false", "on", "off", "yes", "no", "True", "False"))
    if roll < 0.55:
        return words.word()
    if roll < 0.65:
        return words.number() + rng.choice(("s", "ms", "m", "MB", "GB", "k", "%", "h", "Mi", "d"))
    if roll < 0.75:
        return words.host() + rng.choice(("", f":{rng.randint(80, 65000)}"))
    if roll < 0.8:
        return words.absolute_path()
    if roll < 0.87:
        scheme = rng.choice(("https", "http", "postgres", "redis", "amqp", "mysql"))
        return f"{scheme}://{words.host()}/{words.word()}"
    if roll < 0.92:
        return words.phrase(2, 3)
    while any(sign in (text := words.value()) for sign in "'\"`#;$\\{}"):
        pass
    return text


def make_settings(
    words: Lexicon, size: int, *, twice: bool = False, said: bool = False
) -> Settings:
    """A file of about `size` settings.

    Args:
        words: what it is written with.
        size: how many.
        twice: one key, or each of a section, stands in two or three places.
        said: comments name settings in words that their keys do not have.
    """
    rng = words.rng
    if not twice and not said and rng.random() < 0.25:
        config = make_config(words, size)
        known = zip(config.pairs, config.places, strict=True)
        pairs = tuple(Setting(key, value, place) for (key, value), place in known)
        return Settings(config.path, config.text, pairs)
    form = rng.choice([f for f in FORMATS if f.comment or not said])
    lines: list[str] = []
    items: list[Setting] = []
    names = _names(words, form, size)
    if twice:
        if form.sections and rng.random() < 0.35:  # sections alike: [primary] and [replica]
            names = names[:6] * rng.choice((2, 2, 3))
        else:
            names += rng.choices(names, k=1) * rng.choice((1, 1, 2))
            rng.shuffle(names)
    say = rng.choice(form.comment.split("|"))
    ways = rng.choice((form.lines.split("|"), [rng.choice(form.lines.split("|"))]))
    short = {"{W}": lambda: words.word().capitalize()}
    seen: dict[str, str] = {}
    for name in names:
        if form.sections and (not lines or name in seen or rng.random() < 0.15):
            lines += [""] if lines and rng.random() < 0.5 else []
            lines.append(fill(words, rng.choice(form.sections.split("|")), short))
        elif lines and form.around and rng.random() < 0.12:
            lines.append(fill(words, rng.choice(form.around.split("|")), short))
        elif seen and rng.random() < 0.04:
            used = rng.choice(list(seen))
            lines.append(fill(words, rng.choice(USES).replace("{k}", used)))
        elif say and rng.random() < 0.08:
            lines.append(f"{say} {words.phrase(1, 5)}")
        text = ""
        if say and rng.random() < 0.05:  # set once, and taken back
            lines.append(f"{say}{_row(words, ways[0], name, _value(words))[0].lstrip()}")
        if said and rng.random() < 0.6:
            text = words.phrase(2, 3)
            more = rng.choice(("{}", "the {}", "{} of the server", "{} ({})", "{}, see {}"))
            indent = " " * rng.choice((0, 0, 2, 4))
            lines.append(f"{indent}{say} {more.replace('{}', text, 1).replace('{}', words.word())}")
        value = _value(words)
        while value == seen.get(name):
            value = _value(words)
        row, key = _row(words, rng.choice(ways), name, value)
        if say and not said and rng.random() < 0.06:
            row += f"  {say} {words.phrase(1, 4)}"
        seen[name] = value
        lines.append(row)
        items.append(Setting(key, value, len(lines), text))
    path = words.path(tuple(form.paths.split("|")))
    return Settings(path, "\n".join(lines) + "\n", tuple(items))


def _names(words: Lexicon, form: Format, size: int) -> list[str]:
    rng = words.rng
    names: dict[str, None] = {}
    while len(names) < size:
        if not words.held_out and rng.random() < 0.35:
            parts = rng.choice(WELL_KNOWN).split("_")
        else:
            parts = [words.word() for _ in range(rng.choice((1, 2, 2, 3)))]
        if names and rng.random() < 0.06:  # a key within another: a search finds both
            parts = [*rng.choice(list(names)).lower().split("_"), words.word()]
            parts = parts[::-1] if rng.random() < 0.5 else parts
            names[keyed(parts, form.style)] = None
            continue
        name = keyed(parts, form.style)
        if not any(name.lower() in k.lower() or k.lower() in name.lower() for k in names):
            names[name] = None
    return list(names)


def _row(words: Lexicon, way: str, key: str, value: str) -> tuple[str, str]:
    """The line, and the key as it stands in it."""
    bare = value.isdigit() or value in ("true", "false")
    quote = words.rng.choice(('"', '"', "'"))
    texts: dict[str, Callable[[], str]] = {
        "{q}": lambda: f"{quote}{value}{quote}",
        "{t}": lambda: value if bare else f'"{value}"',
        "{v}": lambda: value,
    } | dict.fromkeys(("{k}", "{K}", "{C}", "{c}"), lambda: key)
    return fill(words, way, texts), key
