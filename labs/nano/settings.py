"""Settings in the formats of real programs, with comments that name them and keys that repeat."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .configs import CONFIG_EXTENSIONS, make_config
from .log_texts import fill
from .words import Lexicon


@dataclass(frozen=True, slots=True)
class Setting:
    """A key and its value, the number of its line, and what its comment calls it, if anything."""

    key: str
    value: str
    line: int
    said: str = ""
    section: str = ""
    """The words of its heading."""
    asks: tuple[str, ...] = ()
    """Questions about its comment; the searched words are between stars."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration file and what it sets."""

    path: str
    text: str
    items: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file: its names, its lines, and what surrounds them."""

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
    Format("=compose.yaml|=docker-compose.yml|yaml", "    {k}: {v}|    {k}: {q}", "#", "  {w}:",
           '    ports:|      - "{n}:{n}"|services:|volumes:|', "snake"),
    Format("yaml|=values.yaml|=deployment.yaml", "    {c}: {v}|    {c}: {q}", "#", "  {w}:",
           "{w}:|---|", "small"),
    Format("=crontab|cron|=root.cron", "{K}={v}", "#", "", "{n} {n} * * * {w} {p}|", "upper"),
    Format("=nginx.conf|conf", "        {k} {v};", "#", "    server {|    {w} {",
           "    }|http {|    location /{w} {|", "snake"),
    Format("h|c|=config.h", "#define {K} {v}", "//", "", "#include <{w}.h>|", "upper"),
    Format("conf|=redis.conf|=sentinel.conf|=valkey.conf", "{k} {v}", "#", "", "|", "dash"),
    Format("xml|=config.xml|=settings.xml", "  <{k}>{v}</{k}>|    <{k}>{v}</{k}>", "", "  <{w}>",
           "  </{w}>|", "small"),
    Format("xml|=pom.xml|=web.xml", "    <{k}>{v}</{k}>", "", "  <{w}>", "  </{w}>|", "dots"),
    Format("=.editorconfig|=.gitconfig|=.pylintrc|=.flake8|=.npmrc", "{k} = {v}|\t{k} = {v}|"
           "{k}={v}", "#", "[{w}]", "|", "snake"),
    Format("php|=config.php|=wp-config.php", "define('{K}', '{v}');|define( '{K}', '{v}' );", "//",
           "", "<?php|", "upper"),
    Format("tf|tfvars|hcl", "  {k} = {t}|{k} = {t}", "#", 'resource "{w}" "{w}" {', "}|", "snake"),
)  # fmt: skip

GROUPS = tuple(tuple(row.split()) for row in (
    "primary replica standby", "primary secondary", "master slave", "leader follower",
    "main backup", "client mysqld mysqldump", "dev qa live", "testing packaging",
    "web worker db", "api worker scheduler", "frontend backend", "web mail cache db",
    "requests limits", "source target", "input output", "http https", "internal external",
    "east west", "north south", "local remote", "read write", "smtp imap", "left right",
    "first second third", "red blue", "liveness readiness startup", "user admin",
    "train eval", "upstream downstream", "public private", "build runtime", "home office",
    "queue mailer reports", "valkey postgres nats", "app proxy", "laptop server nas",
    "access error", "cpu gpu", "default debug", "ci release", "day night", "old new",
))  # fmt: skip
"""Headings that stand beside each other in real files, over the same keys."""
HEADINGS = frozenset(name for group in GROUPS for name in group)
USES = (
    'echo "${k}"', '{w} --{w} "${k}"', 'if [ -z "${k}" ]; then', "{w}({k}, {w})", "# {w} {k} {w}",
    "    return {k}", "{w} {w} {k} {w}",
)  # fmt: skip
"""Lines that name a key {k} and set nothing."""
_KEYS = (
    "port host user listen server_name root timeout workers debug log_level level region "
    "image name version url password database replicas memory cpus schedule retries interval "
    "path mode bind driver max_size client_max_body_size worker_connections keepalive_timeout "
    "max_connections shared_buffers volumes environment endpoint token secret bucket domain "
    "email theme language timezone time_zone ttl threads queue backend bind_address "
    "listen_address allowed_hosts api_key access_log error_log log_file log_format log_dir "
    "data_dir cache_dir work_dir base_url home_page max_items max_retries retry_count "
    "retry_delay retry_interval session_timeout session_ttl idle_timeout read_timeout "
    "connect_timeout request_timeout start_timeout shutdown_timeout pool_size max_pool_size "
    "min_pool_size buffer_size batch_size chunk_size page_size cache_size queue_size "
    "window_size max_age max_length line_length max_depth max_workers max_threads max_clients "
    "max_requests max_upload_size rate_limit burst_limit memory_limit cpu_limit disk_quota "
    "user_name group owner admin_email mail_from mail_to smtp_host smtp_port db_host db_port "
    "db_name db_user db_password redis_host redis_port redis_url database_url broker_url "
    "queue_name topic group_id client_id client_secret tenant project account cluster "
    "node_name zone availability_zone instance_type disk_size image_tag repository registry "
    "pull_policy service_type replica_count restart_policy start_command entrypoint command "
    "args exec_start working_directory description wanted_by after restart log_rotation "
    "rotate_days keep_days keep_hours backup_dir backup_time compress encryption cipher "
    "ssl_cert ssl_key tls_version verify_ssl require_tls permit_root_login "
    "password_authentication x11_forwarding max_auth_tries allow_users auth_method autostart "
    "autocommit auto_vacuum slow_query_log long_query_time innodb_buffer_pool_size work_mem "
    "wal_level max_wal_size isolation_level charset collation default_language locale "
    "currency units precision tolerance threshold warn_at critical_at sample_rate frame_rate "
    "bit_rate volume brightness width height margin font font_size color background title "
    "subtitle author license python_version node_version requires_python target "
    "target_version build_dir out_dir source_map minify strict no_emit module lib include "
    "exclude test_paths coverage parallel shuffle seed epochs learning_rate dropout optimizer "
    "checkpoint refresh_interval refresh_minutes poll_interval heartbeat grace_period "
    "cooldown delay offset limit max_price min_price discount tax_rate shipping feature_flags "
    "enable_cache enable_metrics metrics_port health_path prefix suffix namespace label "
    "selector hostname dns_server gateway netmask mtu proxy upstream fallback primary "
    "secondary leader role station default_station location worker_count thread_count "
    "node_count connection_count session_count page_count item_count user_count copy_count "
    "shard_count entry_count query_count num_workers num_threads num_shards num_replicas "
    "num_copies num_retries max_entries max_queries max_copies "
    "fail_fast fail_timeout max_fails error_page on_error on_failure ignore_errors "
    "max_errors error_level crash_dir exit_code listen_port list_size line_width file_mode "
    "search_path find_limit read_only show_hidden open_timeout max_open_files stop_signal "
    "lock_timeout keep_alive line_ending last_run next_run first_day first_page file_name "
    "list_style find_links open_ports show_errors failure_threshold error_format expire_days "
)
WELL_KNOWN: tuple[str, ...] = tuple(_KEYS.split())
"""Keys of real files; the rest are made up."""


_OF_SETTINGS = {end.removeprefix("=") for form in FORMATS for end in form.paths.split("|")}


def holds_settings(path: str) -> bool:
    """Return whether a file of this name may have settings."""
    name = path.rpartition("/")[2]
    return not {name, name.rpartition(".")[2]}.isdisjoint({*_OF_SETTINGS, *CONFIG_EXTENSIONS})


TRUTHS = ("true", "false", "true", "false", "yes", "no", "on", "off", "True", "False", "1", "0")
_TRUTHY = re.compile(
    r"(?i)^(enable|use|allow|verify|require|disable|debug|strict|auto|with)(?![a-z]{3,}$)"
    r"|(enabled|enable|_on|allowed)$"
)
"""Names of what is true or false."""


def keyed(parts: Sequence[str], style: str) -> str:
    """Join a key of several words in the format's style."""
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
    if rng.random() < 0.12:
        return _of_kind(words)
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


def _of_kind(words: Lexicon) -> str:
    """Return a value with signs and spaces inside, which is copied whole or not at all."""
    rng = words.rng
    n, w = words.rng.randint, words.word
    return rng.choice((
        lambda: f"{w()}/{w()}:{n(0, 30)}.{n(0, 20)}.{n(0, 9)}",
        lambda: f"{w()}/{w()}:v{n(0, 9)}.{n(0, 40)}",
        lambda: f"{w()}:{n(1, 20)}-{w()}",
        lambda: f"{words.host()}:{n(80, 9999)}/{w()}",
        lambda: f"{n(0, 59)} {n(0, 23)} * * {rng.choice(('*', '1', '1-5', '0'))}",
        lambda: f"*/{n(2, 30)} * * * *",
        lambda: f"{rng.choice(('>=', '^', '~', '>= ', '=='))}{n(0, 20)}.{n(0, 20)}",
        lambda: f"{w()}@{n(0, 20)}.{n(0, 20)}.{n(0, 9)}",
        lambda: f"{w()}@{words.host()}",
        lambda: f"-{w()[0].upper()}{n(0, 3)} -{w()}",
        lambda: f"{words.absolute_path()} --{w()} {n(1, 99)}",
        lambda: f"{n(80, 9000)} {w()}",
        lambda: f"{w()}-{w()}-{w()}",
        lambda: f"{w()}, {w()}, {w()}",
        lambda: f"{w()}={w()}",
        lambda: f"{words.absolute_path()} {w()}",
        lambda: f"{n(1, 99)}.{n(0, 99)}",
        lambda: f"v{n(0, 9)}.{n(0, 40)}.{n(0, 9)}",
        lambda: f"1{n(0, 9)}.{n(0, 255)}.{n(0, 255)}.0/{n(8, 30)}",
    ))()  # fmt: skip


def make_settings(
    words: Lexicon,
    size: int,
    *,
    twice: bool = False,
    said: bool = False,
    switch: bool = False,
    wanted: Sequence[str] = (),
) -> Settings:
    """Generate a file of about `size` settings.

    Args:
        words: what it is written with.
        size: how many.
        twice: one key, or each of a section, stands in two or three places.
        said: comments name settings in words that their keys do not have.
        switch: under some headings stands whether the thing is enabled.
        wanted: the words of a key that it sets.
    """
    rng = words.rng
    if not (twice or said or switch or wanted) and rng.random() < 0.25:
        config = make_config(words, size)
        known = zip(config.pairs, config.places, strict=True)
        pairs = tuple(Setting(key, value, place) for (key, value), place in known)
        return Settings(config.path, config.text, pairs)
    form = rng.choice([f for f in FORMATS if f.comment or not said])
    while switch and not re.fullmatch(r"\W*\{[wW]\}\W*", form.sections):
        form = rng.choice(FORMATS)
    lines: list[str] = []
    items: list[Setting] = []
    names = _names(words, form, size, wanted)
    starts: set[int] = set()
    if twice:
        if form.sections and rng.random() < 0.5:  # sections alike: [primary] and [replica]
            names, starts = _alike(rng, names[:6])
        else:
            names += rng.choices(names, k=1) * rng.choice((1, 1, 1, 2, 3))
            rng.shuffle(names)
    say = rng.choice(form.comment.split("|"))
    ways = rng.choice((form.lines.split("|"), [rng.choice(form.lines.split("|"))]))
    short = {"{W}": lambda: words.word().capitalize()}
    headings = _headings(words)
    seen: dict[str, str] = {}
    here: set[str] = set()
    section = ""
    for at, name in enumerate(names):
        begins = not lines or name in here or (at in starts if starts else rng.random() < 0.15)
        if form.sections and begins:
            lines += [""] if lines and rng.random() < 0.5 else []
            lines.append(fill(words, rng.choice(form.sections.split("|")), headings))
            section = " ".join(re.findall(r"\w+", lines[-1]))
            here = set()
            if switch and rng.random() < 0.8:
                value = rng.choice(("true", "false", "true", "false", "yes", "no", "on", "off"))
                row, key = _row(words, ways[0], keyed(["enabled"], form.style), value)
                lines.append(row)
                items.append(Setting(key, value, len(lines), "", section))
        elif lines and form.around and rng.random() < 0.12:
            lines.append(fill(words, rng.choice(form.around.split("|")), short))
        elif seen and rng.random() < 0.04:
            used = rng.choice(list(seen))
            lines.append(fill(words, rng.choice(USES).replace("{k}", used)))
        elif say and rng.random() < 0.08:
            lines.append(f"{say} {words.phrase(1, 5)}")
        text = ""
        asks: tuple[str, ...] = ()
        back = rng.random() if say else 1.0
        if back < 0.06:  # set once, and taken back
            lines.append(_taken_back(words, say, ways[0], name))
        if said and rng.random() < 0.6:
            text = words.phrase(2, 3)
            if rng.random() < 0.7:
                text, asks = describe(words)
            more = rng.choice(("{}", "the {}", "{} of the server", "{} ({})", "{}, see {}"))
            indent = " " * rng.choice((0, 0, 2, 4))
            more = "{}" if asks and rng.random() < 0.8 else more
            lines.append(f"{indent}{say} {more.replace('{}', text, 1).replace('{}', words.word())}")
        value = _value(words)
        if _TRUTHY.search(name) and rng.random() < 0.75:
            value = rng.choice(TRUTHS)
        if name in seen and rng.random() < 0.1:  # the same again
            value = seen[name]
        row, key = _row(words, rng.choice(ways), name, value)
        if say and not said and rng.random() < 0.06:
            row += f"  {say} {words.phrase(1, 4)}"
        seen[name] = value
        here.add(name)
        lines.append(row)
        items.append(Setting(key, value, len(lines), text, section, asks))
        if not said and back > 1 - 0.04 and say:
            lines.append(_taken_back(words, say, ways[0], name))
    path = words.path(tuple(form.paths.split("|")))
    return Settings(path, "\n".join(lines) + "\n", tuple(items))


def _taken_back(words: Lexicon, say: str, way: str, name: str) -> str:
    """Return a setting that is commented out."""
    row = _row(words, way, name, _value(words))[0].lstrip()
    return f"{say}{words.rng.choice(('', '', ' '))}{row}"


def _alike(rng: random.Random, names: list[str]) -> tuple[list[str], set[int]]:
    """Return the keys of two to four similar sections, and where each begins."""
    out: list[str] = []
    starts: set[int] = set()
    for number in range(rng.choice((2, 2, 2, 3, 3, 4))):
        block = [name for name in names if not number or rng.random() < 0.85] or names[:1]
        if rng.random() < 0.2:
            rng.shuffle(block)
        starts.add(len(out))
        out += block
    return out, starts


def _headings(words: Lexicon) -> dict[str, Callable[[], str]]:
    """Return the slots of headings: names that go together in real files, or any words."""
    rng = words.rng
    group = list(rng.choice(GROUPS)) if not words.held_out and rng.random() < 0.5 else []

    def name() -> str:
        return group.pop(0) if group else words.word()

    return {"{w}": name, "{W}": lambda: name().capitalize()}


@cache
def _described(held_out: bool) -> tuple[str, ...]:
    text = Path(__file__).with_name("described.txt").read_text(encoding="utf-8")
    trained, _, unseen = text.partition("=== unseen\n")
    return tuple(row for row in (unseen if held_out else trained).split("\n") if row)


def describe(words: Lexicon) -> tuple[str, tuple[str, ...]]:
    """Return a comment on a setting, and questions for it in other words."""
    row = words.rng.choice(_described(words.held_out))
    for slot in ("{a}", "{b}"):
        row = row.replace(slot, words.word() + words.rng.choice(("", "", "", "s")))
    said, *asks = (part.strip() for part in row.split("|"))
    return said.replace("*", ""), tuple(asks)


@cache
def _natural(held_out: bool) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    text = Path(__file__).with_name("keyed.txt").read_text(encoding="utf-8")
    trained, _, unseen = text.partition("=== unseen\n")
    rows = [row.split(" | ") for row in (unseen if held_out else trained).split("\n") if row]
    return tuple((tuple(key.split("_")), tuple(asks)) for key, *asks in rows)


def natural(words: Lexicon) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a real key, and questions about it; searched words between stars."""
    return words.rng.choice(_natural(words.held_out))


def _names(words: Lexicon, form: Format, size: int, wanted: Sequence[str] = ()) -> list[str]:
    rng = words.rng
    names: dict[str, None] = {keyed(wanted, form.style): None} if wanted else {}
    while len(names) < size:
        if not words.held_out and rng.random() < 0.5:
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
    if not wanted:
        return list(names)
    return rng.sample(list(names), len(names))


def _row(words: Lexicon, way: str, key: str, value: str) -> tuple[str, str]:
    """Return the line, and the key as written in it."""
    bare = value.isdigit() or value in ("true", "false")
    quote = words.rng.choice(('"', '"', "'"))
    texts: dict[str, Callable[[], str]] = {
        "{q}": lambda: f"{quote}{value}{quote}",
        "{t}": lambda: value if bare else f'"{value}"',
        "{v}": lambda: value,
    } | dict.fromkeys(("{k}", "{K}", "{C}", "{c}"), lambda: key)
    return fill(words, way, texts), key
