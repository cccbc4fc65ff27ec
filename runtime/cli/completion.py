"""``triplepoint completion``: a script that completes commands, options and files in a shell."""

from __future__ import annotations

import argparse

import shtab

from .arguments import Commands, build_parser
from .output import Output


def run(args: argparse.Namespace, output: Output) -> None:
    """Print the completion script; it completes values without fixed choices as file names."""
    parsers = [build_parser(whole=True)]
    for parser in parsers:
        for action in parser._actions.copy():
            if isinstance(action, Commands):
                _add_what_is_short(parser, action)
                parsers += action.choices.values()
            elif action.nargs != 0 and action.choices is None:
                action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue]
    print(shtab.complete(parsers[0], args.shell), flush=True)


def _add_what_is_short(parser: argparse.ArgumentParser, commands: Commands) -> None:
    """Add the shortcuts of commands, and the options of the default command."""
    for word, (verb, name) in commands.short.items():
        (inner,) = (a for a in commands.choices[verb]._actions if isinstance(a, Commands))
        commands.add_alias(word, inner.choices[name], f"short for `{verb} {name}`")
    if commands.fallback:
        own = commands.choices[commands.fallback]._actions
        parser._actions += [a for a in own if a.option_strings and "-h" not in a.option_strings]
