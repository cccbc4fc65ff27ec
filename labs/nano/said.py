"""Spoken forms of a key: some of its words, reordered, with its heading, in the plural."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .settings import Setting
from .writer import Writer


def counted(key: str) -> str:
    """Return, in the plural, what a key counts: `retries` of `retry_count`; else nothing."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|[_.-]+", " ", key).lower().split()
    if len(parts) == 2 and parts[1] == "count":
        one = parts[0]
        return f"{one[:-1]}ies" if re.search(r"[^aeiou]y$", one) else f"{one}s"
    if len(parts) == 2 and parts[0] in ("max", "num") and parts[1].endswith("s"):
        return parts[1]
    return ""


def loosely_said(writer: Writer, item: Setting) -> str:
    """Return a key as people remember it: words, reordered, with its heading, in the plural."""
    rng = writer.rng
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|[_.-]+", " ", item.key).lower().split()
    if not parts:
        return item.key
    heading = item.section.lower().split()
    roll = rng.random()
    if heading and roll < 0.5:
        return under_heading(writer, item)
    if len(parts) > 2 and roll < 0.8:
        at = rng.randrange(len(parts) - 1)
        kept = [parts[at], parts[-1]] if rng.random() < 0.5 else parts[at : at + 2]
        return " ".join(kept)
    if len(parts) > 1 and roll < 0.85:
        last, first = parts[-1], parts[0]
        return rng.choice((f"{last} of {first}", f"{last} for the {first}",
                           f"{last} of the {first}", f"{last} {first}"))  # fmt: skip
    name = " ".join(parts)
    return name if name.endswith("s") or not name[-1:].isalpha() else name + "s"


def under_heading(writer: Writer, item: Setting) -> str:
    """Return a key and its heading, which distinguishes it from others of its name."""
    rng = writer.rng
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|[_.-]+", " ", item.key).lower().split()
    of = " ".join(item.section.lower().split()[-2:])
    if not of or not parts:
        return item.key
    name = " ".join(parts) if rng.random() < 0.75 else item.key
    kind = rng.choice(("section", "block", "container", "service", "part", "settings"))
    return rng.choice((
        f"{of} {name}", f"{of} {name}", f"{name} of the {of}", f"{name} of {of}", f"{of}'s {name}",
        f"{name} for {of}", f"{name} for the {of}", f"the {of}'s {name}", f"{name} in {of}",
        f"{name} of the {of} {kind}", f"{name} in the {of} {kind}", f"{name} {of}",
    ))  # fmt: skip


def said_key(writer: Writer, items: Sequence[Setting]) -> str:
    """Return how the question calls one of the settings."""
    rng = writer.rng
    commented = [item for item in items if item.said and not item.asks]
    if commented and rng.random() < 0.75:
        return rng.choice(commented).said
    keys = [item.key for item in items]
    counts = [item for item in items if counted(item.key)]
    if counts and rng.random() < 0.4:
        name = counted(rng.choice(counts).key)
        return rng.choice((name, name, f"number of {name}"))
    again = [key for key in keys if keys.count(key) > 1]
    key = rng.choice(again if again and rng.random() < 0.85 else keys)
    same = [item for item in items if item.key == key]
    if len({item.section for item in same}) > 1 and rng.random() < 0.4:
        return under_heading(writer, rng.choice(same))
    if key in again and key[-1:].isalpha() and key[-1:] not in "sS" and rng.random() < 0.15:
        return f"{key.replace('_', ' ').lower()}s"
    if ("_" in key.strip("_") or "-" in key.strip("-")) and rng.random() < 0.3:
        return key.replace("_", " ").replace("-", " ").lower()
    if rng.random() < 0.3:
        return loosely_said(writer, rng.choice(same))
    return key.lower() if key.isupper() and rng.random() < 0.2 else key
