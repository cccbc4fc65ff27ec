"""The corpus's words: from real source text, and random strings.

Words come from the Python standard library's own source, so no word list travels with the
package. One word in eight, chosen by its checksum, is held out: training never sees it, and
evaluation uses nothing else.
"""

from __future__ import annotations

import random
import re
import string
import sysconfig
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

MODULES = (
    "argparse asyncio/base_events asyncio/streams calendar configparser csv datetime difflib "
    "doctest email/message ftplib http/client http/server imaplib inspect json/decoder locale "
    "logging/__init__ logging/handlers mailbox multiprocessing/pool optparse os pathlib pdb "
    "pickle platform poplib pydoc queue random sched selectors shutil smtplib socket "
    "socketserver sqlite3/dump ssl statistics subprocess tarfile tempfile textwrap threading "
    "tokenize traceback turtle typing unittest/case unittest/mock urllib/request uuid warnings "
    "wsgiref/handlers xml/dom/minidom xmlrpc/client zipfile"
)
COMMON = (
    "app server main worker api web db database cache queue auth login user session client "
    "service config settings system disk memory network backup deploy build test release data "
    "index report audit access job task cron mail proxy gateway payment order billing stock "
    "metrics monitor kernel boot sync import export upload download notes todo readme error "
    "debug output result pipeline model train router scheduler storage engine"
)
PLAIN = (
    "account action active address agent alert alias amount analytics archive area array asset "
    "async attempt author backend backlog balance banner base batch billing binary bind block "
    "blue board body border branch bridge broker browser bucket budget buffer bundle burst button "
    "bytes cache calendar camera capacity cart case catalog channel chart check chunk city class "
    "cleanup clock clone cloud cluster code color column command comment commit compact company "
    "compress connect console consumer contact container content context control cookie copy core "
    "count country coupon crawler credit currency cursor customer daemon dashboard dataset "
    "date day dead deadline default delay delete delivery depth desktop device dialect digest "
    "directory discount dispatch display document domain door download draft driver dump duration "
    "edge editor email enable encoder encryption endpoint engine entry env epoch event exchange "
    "expire external factor feature feed fetch field filter final firewall first flag flush "
    "folder font footer force format frame front full garbage gauge global grace grid group guest "
    "handler hash header health heap heartbeat height hidden history home hook host hourly house "
    "icon idle image inbox initial inner input instance interface internal interval invoice item "
    "iteration jitter journal keepalive key label lambda language large latency layer layout "
    "lease left legacy length letter level license lifetime light limit link list listen loader "
    "local locale lock log lookup loop machine main manager manifest margin market mask master "
    "match max media member merge message method middleware min minute mirror mobile mode module "
    "month mount music name namespace network node number object offset online open option order "
    "origin outer owner package page panel parallel partition password path payload peer pending "
    "period phone photo ping pipeline plan platform player plugin point policy poll pool port "
    "prefix preview price primary print priority private probe process producer product profile "
    "project protocol provider public publish pull push quality query quota radius random range "
    "rate ratio raw reader record red redirect refresh region registry relay release reload "
    "remote render replica reply request reserve reset resource response restart restore result "
    "retention retry return review ring role root rotate round route row rule runner runtime "
    "sample sandbox save scale scan schedule schema scope score screen script search second "
    "secret section secure seed segment select sender sensor serial server shard share shutdown "
    "sidebar signal signature silent site size slave slot small snapshot socket sort source space "
    "speed spool stack staging stale standby start state static station status step stock stop "
    "stream street strict subject subnet suffix summary support swap switch table tag target team "
    "telemetry temp tenant text theme thread threshold throttle ticket time timeout timezone "
    "title token topic total trace traffic transfer trial trigger trust tunnel type unique unit "
    "update upload upstream usage user vacuum validate value vendor version video view virtual "
    "visible visitor volume wait warehouse watch webhook weight wheel width window wipe worker "
    "workspace write year zone"
)
"""Words that programs, their settings and the people who run them use."""
SIGNED = (
    "${_}", "{_}", "<_>", "_&_", "_+_", "~/_", "_^_", "$_", "_|_", "a=_&b=_", "_->_", "@_/_", "_*",
    "(_)", "[_]", "_;_", "!_", "?_=_", "_::_", "`_`", "#_", "100%", "--_=_", "-_",
)  # fmt: skip
ALPHABETS = (
    "äöüßéèêàçñøåíóúãõœæ", "абвгдежзийклмнопрстуфхцчшщыьэюя", "αβγδεζηθικλμνξοπρστυφχψω",
    "的一是不了人我在有他这中大来上个国", "あいうえおかきくけこアイウエオカキ", "€→✓×°µ–…“”",
)  # fmt: skip
SCRIPTS = (
    (0x4E00, 0x9FA0), (0x4E00, 0x9FA0), (0xAC00, 0xD7A0), (0x3041, 0x3093), (0x410, 0x44F),
    (0x5D0, 0x5EA), (0x621, 0x63A), (0x905, 0x939), (0xE01, 0xE2E), (0x1F600, 0x1F64F),
    (0x1F680, 0x1F6C0), (0xC0, 0xD6), (0x100, 0x17E),
)  # fmt: skip
"""Ranges of letters and signs whose UTF-8 is two to four bytes."""
_BARE = (
    "Makefile README LICENSE CHANGELOG TODO syslog messages dmesg notes Dockerfile Procfile "
    "VERSION AUTHORS INSTALL NOTICE fstab hosts crontab hostname passwd sudoers Jenkinsfile "
    "Vagrantfile sshd_config Gemfile Pipfile journal stdout stderr .gitignore .bashrc .profile "
    ".npmrc .editorconfig .dockerignore .vimrc .htaccess CODEOWNERS Rakefile Justfile"
)
BARE = tuple(_BARE.split())
DOTTED = ("_.DAY.EXT", "_-DAY.EXT", "_._.EXT", "._", "_.EXT.1", "_.EXT.7", "_.EXT.bak", "._.EXT")
SPACED = ("_ _.EXT", "_ _.EXT", "_ _ _.EXT", "_ (1).EXT", "_ (3).EXT", "_ 2024.EXT", "_ - _.EXT")
FOLDERS = ("logs", "config", "src", "etc", "docs", "data", "var", "lib", "tests", "conf")
_ODD = (
    ".github .config .ssh .vscode .cache .local 2023 2024 2025 01 12 2024-05 conf.d nginx.d v1 v2 "
    "v1.2 Documents Downloads Desktop SRC LOGS Backup backup.old vendor __tests__"
)
ODD_FOLDERS = tuple(_ODD.split())
SPACED_FOLDERS = ("_ _", "_ _", "_ N", "_-_", "_.d", "_.old", "_ (1)", "N _", "_ - _")
FOREIGN = ("_.EXT", "_.EXT", "__.EXT", "_ _.EXT", "_-_.EXT")
"""Names that are not a word, a dot and an extension: `_` is a word."""
CONSONANTS = "bcdfghjklmnprstvwxz"
UNITS = ("ms", "s", "MB", "GiB", "%", "kB", "min", "k", " bytes", "px", "h", "d")
HELD_OUT = 8  # one word in so many


@cache
def _source() -> str:
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (root / f"{module}.py" for module in MODULES.split())
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())


def _chosen(texts: Iterable[str], held_out: bool) -> tuple[str, ...]:
    return tuple(t for t in texts if (zlib.crc32(t.encode()) % HELD_OUT == 0) == held_out)


@cache
def harvest(held_out: bool) -> tuple[str, ...]:
    """Return the words that occur at least twice in the source, sorted."""
    counts = Counter(re.findall(r"[a-z]{3,12}", _source().lower()))
    return _chosen(sorted(word for word, count in counts.items() if count >= 2), held_out)


@cache
def plain() -> tuple[str, ...]:
    """Return the `PLAIN` words that are not held out."""
    return _chosen(PLAIN.split(), False)


@cache
def sentences(held_out: bool) -> tuple[str, ...]:
    """Return lines of comments and docstrings: English as programmers write it."""
    lines = re.findall(r"^ *(?:# )?([A-Z][a-z]+ [A-Za-z ,.()'-]{12,70})$", _source(), re.MULTILINE)
    calm = (line for line in lines if not re.search(r"error|fatal|exception|fail", line, re.I))
    return _chosen(sorted(set(calm)), held_out)


def fill_signs(pattern: str, word: Callable[[], str]) -> str:
    """Replace every `_` of `pattern` by a word."""
    return "".join(word() if sign == "_" else sign for sign in pattern)


class Lexicon:
    """A source of words, names and numbers, drawn from one random generator.

    `pieces` are letters that stand together in the vocabulary: words made of them hold the
    tokens that the words of the source hold too seldom for them to be learned.
    """

    def __init__(
        self, rng: random.Random, *, held_out: bool = False, pieces: Sequence[str] = ()
    ) -> None:
        self.rng = rng
        self.pieces = pieces
        self.held_out = held_out
        self.words = harvest(held_out)
        self.common = tuple(COMMON.split()) if not held_out else self.words
        self.plain = plain() if not held_out else self.words
        self.pool: list[str] = []
        self.odd = False
        """Whether names of files are mostly unusual ones."""
        self.talks_of_errors = False
        """Whether lines that tell of no error may hold a word that marks one."""

    def word(self) -> str:
        """Return a lower-case word, a real one six times of seven."""
        if self.pool and self.rng.random() < 0.85:
            return self.rng.choice(self.pool)
        roll = self.rng.random()
        if roll < 0.06:
            return self.rng.choice(self.common)
        if roll < 0.4:
            return self.rng.choice(self.plain)
        return self.rng.choice(self.words) if roll < 0.86 else self.made_up()

    @contextmanager
    def few(self, count: int) -> Iterator[None]:
        """Restrict words inside to mostly `count` ones, as in one program's files."""
        self.pool = [self.word() for _ in range(count)]
        try:
            yield
        finally:
            self.pool = []

    def made_up(self) -> str:
        """Return a string that is not a word: `torabi`, `qxjw`, `k7f2`."""
        rng = self.rng
        if self.pieces and rng.random() < 0.4:
            return "".join(rng.choices(self.pieces, k=rng.randint(1, 3)))
        if rng.random() < 0.08:
            return self.foreign()
        kind = rng.random()
        if kind < 0.45:
            pairs = rng.randint(1, 4)
            return "".join(rng.choice(CONSONANTS) + rng.choice("aeiou") for _ in range(pairs))
        if kind < 0.75:
            return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 8)))
        return "".join(rng.choices(string.ascii_lowercase + string.digits, k=rng.randint(3, 9)))

    def foreign(self) -> str:
        """Return signs of another script, or a word with accents: `größe`, `日志`, `журнал`."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.35:
            letters = list(rng.choice(self.words))
            for _ in range(rng.randint(1, 2)):
                letters[rng.randrange(len(letters))] = rng.choice(ALPHABETS[0])
            return "".join(letters)
        if roll < 0.6:
            return "".join(rng.choices(rng.choice(ALPHABETS), k=rng.randint(1, 6)))
        low, high = rng.choice(SCRIPTS)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 4)))

    def sentence(self) -> str:
        """Return a line of real English."""
        return self.rng.choice(sentences(self.held_out))

    def phrase(self, low: int, high: int) -> str:
        """Return between `low` and `high` words."""
        return " ".join(self.word() for _ in range(self.rng.randint(low, high)))

    def number(self) -> str:
        """Return a whole number of one to five digits."""
        return str(self.rng.randrange(10 ** self.rng.randint(1, 5)))

    def identifier(self) -> str:
        """Return `max_size`, `MaxSize`, `max-size`, `maxSize` or `MAX_SIZE`."""
        parts = [self.word() for _ in range(self.rng.choice((1, 2, 2, 2, 3)))]
        style = self.rng.random()
        if style < 0.45:
            return "_".join(parts)
        if style < 0.6:
            return "".join(part.capitalize() for part in parts)
        if style < 0.7:
            return "-".join(parts)
        if style < 0.85:
            return "_".join(parts).upper()
        return parts[0] + "".join(part.capitalize() for part in parts[1:])

    def host(self) -> str:
        """Return a host name or an IPv4 address."""
        roll = self.rng.random()
        if roll < 0.12:
            return self.rng.choice(("0.0.0.0", "127.0.0.1", "localhost", "10.0.0.1"))
        if roll < 0.2:
            return f"{self.word()}-{self.rng.randrange(20)}"
        if roll < 0.55:
            return ".".join(str(self.rng.randrange(256)) for _ in range(4))
        return f"{self.word()}.{self.word()}.{self.rng.choice(('com', 'net', 'local', 'io'))}"

    def absolute_path(self) -> str:
        """Return `/var/lib/thing`."""
        root = self.rng.choice(("var", "etc", "tmp", "opt", "usr", "home", "srv", "mnt"))
        parts = "/".join(self.word() for _ in range(self.rng.randint(1, 3)))
        return f"/{root}/{parts}"

    def alike(self) -> str:
        """Return two nearly equal texts, as in comparisons and addresses."""
        rng = self.rng
        a, b = (f"{rng.randrange(100)}.{rng.randrange(10)}" for _ in "ab")
        name, digits, minute = self.word(), rng.randrange(1000, 100_000), rng.randrange(60)
        return rng.choice((
            f"{name}('{a}') != {name}('{a}{digits % 10}')",
            f"assert {a}{digits} == {b}{digits}",
            f"[{name}] {name}_{digits}: {name} {digits}",
            f"{name}-{digits} -> {name}-{digits + 1}",
            f"{name}.{name}.{self.word()}",
            f"{digits}{digits}{digits % 7}",
            f"* * * * * {name}",
            f"{digits:08d}.000000",
            f"{name}={digits} {name}={digits + 10}",
            f"{minute} * * * {name}",
            f"assert {name}(1) == {name}(2)",
            f"+{minute:02d}00 {name}/{name}/{name}",
        ))  # fmt: skip

    def value(self) -> str:
        """Return a word with digits and signs, as values and identifiers in logs."""
        rng = self.rng
        kind = rng.randrange(19)
        if kind == 18:
            return self.alike()
        if kind == 0:
            return self.number()
        if kind == 1:
            return f"{self.host()}:{rng.randint(80, 65000)}"
        if kind == 2:
            return self.absolute_path()
        if kind == 3:
            return "".join(rng.choices("0123456789abcdef", k=rng.choice((6, 8, 12))))
        if kind == 4:
            return f"{self.word()}={self.number()}"
        if kind == 5:
            return f"{self.word()}-{rng.randrange(100)}"
        if kind == 6:
            return f"{rng.randrange(100)}.{rng.randrange(10)}"
        if kind == 7:
            return f"'{self.word()}'"
        if kind == 8:
            return f"{rng.randrange(10)}.{rng.randrange(20)}.{rng.randrange(10)}"
        if kind == 9:
            return f"{self.word()}@{self.word()}.{rng.choice(('com', 'org', 'net'))}"
        if kind == 10:
            return f"{rng.randrange(24):02d}:{rng.randrange(60):02d}"
        if kind == 11:  # the start of a UUID, or all of it
            text = "".join(rng.choices("0123456789abcdef", k=32))
            full = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
            return full if rng.random() < 0.3 else full[:13]
        if kind == 12:
            return f"{rng.randrange(10 ** rng.randint(1, 4))}{rng.choice(UNITS)}"
        if kind == 13:
            return f"https://{self.host()}/{self.word()}/{rng.randrange(1000)}"
        if kind == 14:
            return f"{self.word().upper()[:5]}-{rng.randrange(100_000)}"
        if kind == 15:
            return fill_signs(rng.choice(SIGNED), self.word)
        if kind == 16:
            return f"v{rng.randrange(10)}.{rng.randrange(30)}.{rng.randrange(20)}-{self.word()}"
        return self.identifier()

    def stem(self) -> str:
        """Return a file name without its extension."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.4:
            return rng.choice(self.common)
        if roll < 0.6:
            return self.word()
        if roll < 0.8:
            return f"{self.word()}{rng.choice('_-')}{self.word()}"
        if roll < 0.9:
            return f"{self.word()}{rng.choice(('', '-', '_', '.'))}{rng.randrange(1000)}"
        if roll < 0.95:
            return self.word().capitalize()
        return self.word().upper()

    def folder(self) -> str:
        """Return a folder, one or two levels deep."""
        depth = self.rng.choice((1, 1, 1, 2))
        return "/".join(self._folder_name() for _ in range(depth))

    def _folder_name(self) -> str:
        """Return a folder name; one in seven has spaces, signs, digits or another script."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.45:
            return rng.choice(FOLDERS)
        if roll < 0.86:
            return self.word()
        if roll < 0.92:
            return rng.choice(ODD_FOLDERS)
        shape, word = rng.choice(SPACED_FOLDERS), self.word
        if roll > 0.97:
            shape, word = "_", self.foreign
        return fill_signs(shape, word).replace("N", str(rng.randrange(2000, 2030)))

    def path(self, extensions: tuple[str, ...], *, deep: float = 0.4) -> str:
        """Return a relative path with one of the extensions, `deep` of them in a folder."""
        rng = self.rng
        extension = rng.choice(extensions)
        whole = extension.startswith("=")  # a whole name, such as .env
        name = extension[1:] if whole else self._name(extension)
        if rng.random() >= deep:
            return name
        stem = name.partition(".")[0]
        folder = stem if stem and rng.random() < 0.1 else self.folder()
        if rng.random() < 0.3:
            folder += "/" + "/".join(self.word() for _ in range(rng.randint(1, 3)))
        return f"{folder}/{name}"

    def _name(self, extension: str) -> str:
        """Return a file's name; one in four is not a word, a dot and an extension."""
        rng = self.rng
        roll = rng.random() * (1 if self.odd else 4)
        if roll < 0.2:
            if self.odd or rng.random() < 0.8:
                return rng.choice(BARE)
            return rng.choice((self.word(), self.word().capitalize()))
        if roll < 0.35:
            day = f"20{rng.randrange(19, 28)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
            shape, word = rng.choice(DOTTED).replace("DAY", day), self.word
        elif roll < 0.6:
            shape, word = rng.choice(SPACED), self.word
        elif roll < 1.0:
            shape, word = rng.choice(FOREIGN), self.foreign
        else:
            shape, word = "_.EXT", self.stem
        name = fill_signs(shape, word).replace("EXT", extension)
        return name.upper() if shape == "_.EXT" and rng.random() < 0.04 else name
