"""Names of models on the Hub, and pasted addresses.

Qwen/Qwen3-4B-GGUF                       the repository; Q4_K_M if it has several
Qwen/Qwen3-4B-GGUF:Q8_0                  a quantization, or any part of a file's name
Qwen/Qwen3-4B-GGUF:Qwen3-4B-Q8_0.gguf    a file, also one in a subfolder
Qwen/Qwen3-4B-GGUF@v1.0:Q8_0             at a branch, tag or commit
hf.co/…, hf://…, https://huggingface.co/…, also with /tree/, /blob/ or /resolve/
qwen3:4b                                 an alias, of those that `triplepoint models` lists
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ...errors import ModelError
from .aliases import by_alias, near_aliases

MAIN = "main"
HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REPO = re.compile(rf"{_PART}/{_PART}")
_NAME = re.compile(rf"(?P<repo>{_PART}/{_PART})(?:@(?P<revision>[^:\s]+))?(?::(?P<selector>.+))?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")
_PAGES = ("tree", "blob", "resolve")  # of a repository, each followed by a revision and a path


@dataclass(frozen=True, slots=True)
class ModelName:
    """A name of a model: repository, revision, and a selector of its files.

    Attributes:
        repo: ``organization/name``.
        revision: branch, tag or commit.
        selector: quantization or file; None for the default.
    """

    repo: str
    revision: str = MAIN
    selector: str | None = None

    def __str__(self) -> str:
        at = "" if self.revision == MAIN else f"@{self.revision}"
        return self.repo + at + (f":{self.selector}" if self.selector else "")


def is_hub_name(text: str) -> bool:
    """Return whether `text` has the form of a model's name on the Hub. A path may have it too.

    Addresses are such names only if they lead to the Hub: others may be servers of another kind.
    """
    if text.startswith(("http://", "https://")):
        return _leads_to_hub(text)
    if text.startswith(("hf://", *(f"{host}/" for host in HOSTS))):
        return True
    if by_alias(text):
        return True
    match = _NAME.fullmatch(text)
    if match is None or not is_repo(match["repo"]):
        return False
    # models/a.gguf is a path; a repository of such a name can be had as hf.co/models/a.gguf.
    return bool(match["selector"]) or not match["repo"].lower().endswith(".gguf")


def is_repo(text: str) -> bool:
    """Return whether `text` can be the name of a repository."""
    return bool(_REPO.fullmatch(text)) and "--" not in text and ".." not in text


def parse_name(text: str) -> ModelName:
    """Parse a model's name or address in any of the forms above.

    Raises:
        ModelError: it has none of them.
    """
    if known := by_alias(text):
        return ModelName(known.repo, selector=known.file)
    parts = _strip_host(text)
    short = "/".join(parts)
    repo, rest = "/".join(parts[:2]), parts[2:]
    if rest and rest[0] in _PAGES and ":" not in repo:
        return _of_page(text, repo, rest)
    match = _NAME.fullmatch(short)
    if match is None or not is_repo(match["repo"]):
        raise ModelError(
            f"{text!r} is not a model name; names on the Hub look like "
            f"Qwen/Qwen3-4B-GGUF:Q4_K_M, aliases like qwen3:4b{alias_hint(text)}"
        )
    return _made(text, match["repo"], match["revision"] or MAIN, match["selector"])


def alias_hint(text: str) -> str:
    """Suggest aliases near an unknown name, and where to list all, for a message."""
    near = near_aliases(text)
    return (
        f"; did you mean {' or '.join(near)}?"
        if near
        else "; `triplepoint models` lists the aliases"
    )


def _strip_host(text: str) -> list[str]:
    """Split a pasted address at its slashes, without the host."""
    if text.startswith("hf://"):
        return text.removeprefix("hf://").removeprefix("models/").rstrip("/").split("/")
    if text.startswith(("http://", "https://")):
        if not _leads_to_hub(text):
            raise ModelError(
                f"{text!r} is not a huggingface.co URL; for a mirror, set HF_ENDPOINT and give "
                "only the model's name"
            )
        # Cut before it is decoded: the Hub writes a branch's own slash as %2F.
        return [unquote(part) for part in urlsplit(text).path.strip("/").split("/")]
    for host in HOSTS:
        if text.startswith(host + "/"):
            return text.removeprefix(host + "/").rstrip("/").split("/")
    return text.split("/")


def _leads_to_hub(url: str) -> bool:
    try:
        return urlsplit(url).hostname in HOSTS
    except ValueError:  # half a bracket, say
        return False


def _of_page(text: str, repo: str, rest: list[str]) -> ModelName:
    """Parse the path of a repository's web page: kind, revision, then a folder or file."""
    revision, path = (rest[1] if len(rest) > 1 else MAIN), "/".join(rest[2:])
    if rest[1:3] == ["refs", "pr"] and len(rest) > 3:  # the one kind of revision with slashes
        revision, path = "/".join(rest[1:4]), "/".join(rest[4:])
    if not is_repo(repo):
        raise ModelError(f"{text!r}: {repo!r} is not the name of a repository on the Hub")
    return _made(text, repo, revision, path or None)


def _made(text: str, repo: str, revision: str, selector: str | None) -> ModelName:
    if not _REVISION.fullmatch(revision) or ".." in revision or revision.endswith(("/", ".lock")):
        raise ModelError(f"{text!r}: {revision!r} is not the name of a branch, tag or commit")
    return ModelName(repo, revision, selector)
