"""Write the tables of options in docs/cli.md from the parsers.

    python -m labs.docs.cli_options

A block between ``<!-- options of COMMAND -->`` and ``<!-- end -->`` holds the options of a command
and of its commands. What several commands take alike is in the block of ``common`` only.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from triplepoint.runtime.cli.arguments import SHORT, VERBS, Commands, build_parser
from triplepoint.runtime.files import write_file

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
COMMON = ("model and engine", "conversation", "agent", "tools", "sampling", "trace", "output")
"""Titles of the groups that several commands have."""
_BLOCK = re.compile(r"(?<=<!-- options of )([\w ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)

Parsers = dict[str, argparse.ArgumentParser]


def parsers(parser: argparse.ArgumentParser | None = None, words: str = "") -> Parsers:
    """Return the parser of every command that can be run, by its words."""
    parser = parser or build_parser(whole=True)
    inner = [action for action in parser._actions if isinstance(action, Commands)]
    found: Parsers = {} if inner else {words: parser}
    for action in inner:
        for name, one in action.choices.items():
            found |= parsers(one, f"{words} {name}".strip())
    return found


def generated(page: str) -> str:
    """Return the page with its blocks written anew."""
    known = parsers()
    shared = _shared(known)

    def block(found: re.Match[str]) -> str:
        words, rest = found[1], found[2]
        lines = _verbs() if words == "verbs" else _common(known, shared)
        if words not in ("verbs", "common"):
            lines = _own(words, known, shared)
        return "\n".join([words + rest, *lines, "", ""])

    return _BLOCK.sub(block, page)


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str]]:
    """Yield group, flags with their value, and help of each option and argument, but for `-h`."""
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, Commands) or "-h" in action.option_strings:
                continue
            yield group.title or "", _spelled(action), " ".join((action.help or "").split())


def _spelled(action: argparse.Action) -> str:
    value = str(action.metavar or action.dest)
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{value}`"
    flags = [*action.option_strings]
    if action.nargs != 0:
        flags[-1] += f" {value}"
    return ", ".join(f"`{flag}`" for flag in flags)


def _shared(known: Parsers) -> dict[str, dict[str, str]]:
    """Of each common group the options that more than one command has, with the first's help."""
    counts: dict[tuple[str, str], list[str]] = {}
    for parser in known.values():
        for group, flags, text in options(parser):
            if group in COMMON:
                counts.setdefault((group, flags), []).append(text)
    found: dict[str, dict[str, str]] = {group: {} for group in COMMON}
    for (group, flags), texts in counts.items():
        if len(texts) > 1:
            found[group][flags] = texts[0]
    return {group: rows for group, rows in found.items() if rows}


def _verbs() -> list[str]:
    commands = {"models": list(dict.fromkeys(SHORT))}
    lines = ["| command | |", "|---|---|"]
    for name, text in VERBS.items():
        short = "".join(f", `{word}`" for word in commands.get(name, ()))
        lines.append(f"| `triplepoint {name}`{short} | {text} |")
    return lines


def _common(known: Parsers, shared: dict[str, dict[str, str]]) -> list[str]:
    """Write a list for each group; the commands of most of its options are named once."""
    lines: list[str] = []
    for group, rows in shared.items():
        of = {
            flags: tuple(
                words
                for words, parser in known.items()
                if (group, flags) in {one[:2] for one in options(parser)}
            )
            for flags in rows
        }
        usual = max(of.values(), key=[*of.values()].count)
        title = f"**{group[0].upper()}{group[1:]}**"
        lines += [f"{title}, of {_named(usual, known)}:", ""]
        for flags, text in rows.items():
            lines.append(f"- {flags}: {text}{_unusual(of[flags], usual, known)}")
        lines.append("")
    return lines[:-1]


def _unusual(of: Sequence[str], usual: Sequence[str], known: Parsers) -> str:
    """Of which commands an option is, where these are not the usual ones of its group."""
    if {*of} == {*usual}:
        return ""
    if {*of} > {*usual} and len(of) < len(known) - 5:
        return f" (also {_named([words for words in of if words not in usual], known)})"
    return f" (of {_named(of, known)})"


def _named(of: Sequence[str], known: Parsers) -> str:
    if len(of) > len(known) - 5:
        missing = ", ".join(f"`{words}`" for words in known if words not in of)
        return f"all but {missing}"
    return ", ".join(f"`{words}`" for words in _folded(of, known))


def _folded(of: Sequence[str], known: Parsers) -> list[str]:
    """Return the commands, with a verb alone where all of its commands are among them."""
    found: list[str] = []
    for words in of:
        verb = words.partition(" ")[0]
        whole = all(other in of for other in known if other.partition(" ")[0] == verb)
        name = verb if whole else words
        if name not in found:
            found.append(name)
    return found


def _own(words: str, known: Parsers, shared: dict[str, dict[str, str]]) -> list[str]:
    """Return the rows of a verb; of one with commands, each row says of which."""
    mine = {n: p for n, p in known.items() if n == words or n.startswith(f"{words} ")}
    rows: dict[tuple[str, str], list[str]] = {}
    for name, parser in mine.items():
        for group, flags, text in options(parser):
            common = shared.get(group, {}).get(flags)
            # What differs in the default alone is not repeated.
            if common is None or common.partition(" (")[0] != text.partition(" (")[0]:
                rows.setdefault((flags, text), []).append(name)
    if not rows:
        return ["Its options are the common ones."]
    lines: list[str] = []
    for of in dict.fromkeys(map(tuple, rows.values())):
        if [*mine] != [words]:
            lines += ["", f"Of {', '.join(f'`{words}`' for words in _folded(of, known))}:", ""]
        lines += [f"- {f}: {text}" for (f, text), names in rows.items() if tuple(names) == of]
    return lines if lines[0] else lines[1:]


if __name__ == "__main__":
    write_file(PAGE, generated(PAGE.read_text(encoding="utf-8")))
