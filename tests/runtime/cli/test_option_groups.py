"""Options that are declared as fields."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from triplepoint.runtime.cli.arguments import Commands, OneLineParser, build_parser
from triplepoint.runtime.cli.option_groups import OptionGroup, Section, argument, option


class Speeds(OptionGroup):
    """What a command could take."""

    files: list[str] = argument("FILE", nargs="*")
    """files to read"""
    max_tokens: int = option("-n", default=8)
    """tokens to
    write"""
    name: list[str] | None = option("NAME")
    """a name; repeatable"""
    resume: bool = option("--continue", one_of="start")
    """go on"""

    shown = Section("output", "what is shown")
    fresh: bool = option(one_of="begin")
    """begin anew"""
    depths: list[int] = option("-d", default=[1, 2], help="said elsewhere")


def parser_of(group: type[OptionGroup]) -> argparse.ArgumentParser:
    parser = OneLineParser(prog="p")
    group.add_to(parser)
    return parser


def test_the_type_of_a_field_says_how_it_is_read() -> None:
    """Its name is the flag, unless another long one is given."""
    parser = parser_of(Speeds)

    words = ["a", "b", "-n", "3", "--name", "x", "--name", "y", "--continue", "-d", "4,5"]
    given = parser.parse_args(words)
    assert vars(given) == {
        **{"files": ["a", "b"], "max_tokens": 3, "name": ["x", "y"]},
        **{"resume": True, "fresh": False, "depths": [4, 5]},
    }
    assert parser.parse_args([]).depths == [1, 2]


def test_the_help_is_the_string_under_the_field() -> None:
    """A default is named at its end; sections have their titles."""
    shown = " ".join(parser_of(Speeds).format_help().split())

    assert "-n N, --max-tokens N tokens to write (default: 8)" in shown
    assert "output: what is shown --fresh begin anew -d N,…, --depths N,… said elsewhere" in shown
    assert shown.endswith("(default: 1,2)")


def test_a_group_is_changed_for_another_command() -> None:
    """The changed group has other options or settings, and the group itself has not."""
    few = Speeds.only("max_tokens", "name").but(max_tokens={"default": 2, "help": "words"})
    shown = " ".join(parser_of(few).format_help().split())

    assert "words (default: 2)" in shown
    assert "--depths" not in shown
    assert "max_tokens" not in Speeds.omit("max_tokens").options
    assert "tokens to write (default: 8)" in " ".join(parser_of(Speeds).format_help().split())


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, Commands):
            for inner in action.choices.values():
                yield from parsers(inner)


def test_every_option_has_help() -> None:
    """A field without a string under it would be an option that nobody explains."""
    missing = [
        (parser.prog, action.dest)
        for parser in parsers(build_parser(whole=True))
        for action in parser._actions
        if not isinstance(action, Commands) and not action.help
    ]

    assert not missing


def test_of_some_options_only_one_may_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    """Those with the same word exclude each other."""

    class Either(OptionGroup):
        first: bool = option(one_of="which", help="one")
        second: bool = option(one_of="which", help="other")

    with pytest.raises(SystemExit):
        parser_of(Either).parse_args(["--first", "--second"])
    assert "not allowed with" in capsys.readouterr().err
