"""The command line's parser, and argument types shared by several verbs.

The options of a verb are in its own file (`add_options`). Nothing heavy is imported to build a
parser, here or there: `--help` must be instant.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

DESCRIPTION = """\
An agent on your own CPU: it answers questions about your files, on kernels
generated for this machine, and records which regime every phase ran in."""
EPILOG = """\
`pull`, `ls`, `show`, `rm` and `use` are short for `models pull` and so on.
exit status: 0 done, 1 failed or not verified, 2 wrong usage, 3 a model or file
problem, 4 a limit was reached, 5 the answer is that it is not there,
130 interrupted. NO_COLOR turns colors off; TRIPLEPOINT_DEBUG=1 shows
tracebacks; TRIPLEPOINT_TARGET selects another CPU target."""

VERBS = {
    "run": "answer one question about the files in a folder",
    "chat": "ask several questions in a row; /help lists the commands",
    "map": "run an agent on every question in a file: on this machine, on servers or on a Ray "
    "cluster",
    "serve": "serve models over HTTP in the OpenAI and Anthropic API formats",
    "ps": "show a running server's models and requests",
    "models": "find, download, list, show and remove models; set the default one",
    "session": "list, show and remove conversations saved with --session (no model needed)",
    "trace": "list, show, compare, export, view, ingest, query and remove recorded runs (no model "
    "needed)",
    "replay": "show, verify, time or continue a recorded run",
    "eval": "run a suite of tasks on models and settings: accuracy, speed, cost",
    "bench": "measure prefill and decode speed, like llama-bench; its commands measure more",
    "regimes": "draw a model's phase diagram for this machine",
    "plan": "simulate agents on one or many machines; compare the cost of CPU, GPU and API",
    "make": "convert, quantize and score model files",
    "doctor": "show what this CPU is and can do, and the settings and caches",
    "completion": "print a script that completes commands, options and files in bash, zsh or fish",
}
"""The verbs, each with a module or package of its name, in the order of the help."""

SHORT = {name: ("models", name) for name in ("pull", "ls", "show", "rm", "use")}
"""Shortcuts: words that expand to a verb and one of its commands."""

MOVED = {
    **{name: f"make {name}" for name in ("convert", "quantize", "imatrix", "perplexity")},
    **{name: f"doctor {name}" for name in ("config", "cache")},
    "cost": "plan cost",
    "--no-think": "--think off",
    "--no-trace": "--trace off",
    "--no-traces": "--trace off",
    "--traces": "--trace",
    "--no-repetition-stop": "--repetition-stop off",
    "--read-only": "--mode read-only",
    "--ask": "--mode ask",
    "--yes": "--mode yes",
    "--jump-forward": "--tune jump_forward=off",
    "--draft-tokens": "--draft",
    "--draft-source": "--draft",
    "-n": "--limit",
    "--slots": "--parallel",
    "--concurrency": "--parallel",
    "--min-p": "--sampling min_p=P",
    "--repeat-penalty": "--sampling repeat_penalty=X",
    "--repetition-penalty": "--sampling repeat_penalty=X",
    "--presence-penalty": "--sampling presence_penalty=X",
    "--frequency-penalty": "--sampling frequency_penalty=X",
    "--repeat-last-n": "--sampling penalty_last=N",
    "--logit-bias": "--sampling logit_bias=ID:X",
}
"""The current spelling of former or familiar verbs and options, for error messages."""

OTHER_NAMES = {
    "list": "ls",
    "remove": "rm",
    "delete": "rm",
    "download": "pull",
    "get": "pull",
    "info": "show",
    "inspect": "show",
    "default": "use",
    "ask": "run",
    "prompt": "run",
    "batch": "map",
    "fleet": "map",
    "server": "serve",
    "benchmark": "bench",
    "evaluate": "eval",
}
"""The verbs for the names that other programs give them, for error messages."""


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports errors on one line, where argparse would print all options.

    Options are written out: what an abbreviation means would change with each new option.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def explain(self) -> None:
        """Fill in the help of declared options, read from their source only if needed."""
        for action in self._actions:
            if declared := getattr(action, "declared", None):
                action.help = declared.text()

    def format_help(self) -> str:
        self.explain()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print the error on one line, and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print as argparse does, but raise OSError if a help or version text cannot be written."""
        if file is sys.stdout:
            print(message, end="", flush=True)  # OSError
        else:
            super()._print_message(message, file)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse as argparse does; unknown words are reported by the parser of their verb.

        Positional words that take any number may also follow an option: argparse assigns only those
        before the first option.
        """
        args = self._with_command(sys.argv[1:] if args is None else list(args))
        self._refuse_unknown(args)
        found, rest = super().parse_known_args(args, namespace)
        many = [a.dest for a in self._actions if a.nargs == "*" and not a.option_strings]
        if many and rest and not any(word.startswith("-") for word in rest):
            setattr(found, many[-1], [*getattr(found, many[-1]), *rest])
            rest = []
        if rest:
            self._refuse(rest, getattr(found, "question", None))
        return found, rest

    def _with_command(self, words: list[str]) -> list[str]:
        """Expand a shortcut, or insert the default command where none is named."""
        for action in self._actions:
            if isinstance(action, Commands):
                full = action.in_full(words)
                later = [word for word in words[1:] if word in action.choices]
                if later and action.fallback and full is not words and not action.is_open:
                    words.remove(later[0])
                    self.error(
                        f"{later[0]} comes first: {self.prog} {' '.join([*later[:1], *words])}"
                    )
                return full
        return words

    def _refuse_unknown(self, words: list[str]) -> None:
        """Refuse unknown options before argparse takes their values for something else."""
        commands = self._commands()
        if commands and words and not words[0].startswith("-") and words[0] not in commands:
            return  # a mistyped verb, whatever stands behind it
        for word in words:
            if word == "--" or word in commands:
                return
            name = word.partition("=")[0]
            is_option = word.startswith("--") and " " not in word  # else it is a question
            if is_option and name not in self._option_string_actions:
                self._refuse([word], None)

    def _commands(self) -> list[str]:
        return [n for a in self._actions if isinstance(a, Commands) for n in (*a.choices, *a.short)]

    def _refuse(self, rest: list[str], question: str | None) -> NoReturn:
        flags = [word for word in rest if word.startswith("-") and len(word) > 1]
        if question is not None and not flags:
            whole = " ".join((question, *rest)).replace('"', '\\"')
            self.error(f'the question must be one argument; quote it: {self.prog} "{whole}"')
        name = (flags or rest)[0].partition("=")[0]
        known = [*self._option_string_actions, *self._commands()]
        if flags and name in self._option_string_actions:
            self.error(f"{name} comes after --, where options are plain words; put it before")
        near = get_close_matches(name, known, n=1, cutoff=0.7)
        if name in MOVED and MOVED[name].partition(" ")[0] in known:
            hint = f"; it is now {MOVED[name]}"
        else:
            hint = f"; did you mean {near[0]}?" if near and flags else ""
        self.error(f"{'no such option' if flags else 'unexpected argument'}: {name}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if not isinstance(action, Commands) or value in action.choices:
            super()._check_value(action, value)
            return
        known = [*action.choices, *action.short]
        near = [OTHER_NAMES[value]] if OTHER_NAMES.get(value) in known else []
        if f"--{value}" in self._option_string_actions:
            near = [f"--{value}"]
        elif "run" in known and " " in value:
            near = [f'{self.prog} run "{value}"']
        close = [] if near else get_close_matches(value, known, n=2)
        near += sorted(close, key=lambda name: abs(len(name) - len(value)))
        hint = (
            f"did you mean {' or '.join(dict.fromkeys(near))}?"
            if near
            else f"choose from {', '.join(known)}"
        )
        what = (action.metavar or "verb") if isinstance(action.metavar, str) else "verb"
        if self.prog == "triplepoint" and value in MOVED:
            hint = f"it is now {self.prog} {MOVED[value]}"
        raise argparse.ArgumentError(None, f"no such {what.lower()}: {value!r}; {hint}")


Runner = str | Callable[..., int | None]
"""What runs a command: a function, or a module below this package that has a `run`."""


class Commands(argparse._SubParsersAction):
    """The subparsers of verbs, or of a verb's commands; each is built when it is chosen.

    Importing and building all of them takes longer than a run's first pass.
    """

    fallback = ""
    """The default command; "" for none."""
    is_open = False
    """Whether words that name no command are arguments of the default one."""
    short: Mapping[str, tuple[str, str]] = {}
    """Shortcuts: a word, and the verb and command that it expands to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._declared: dict[str, tuple[str, Runner, Any, bool]] = {}

    def in_full(self, words: list[str]) -> list[str]:
        """Expand a shortcut, or insert the default command where none is named."""
        first = words[0] if words else ""
        if first in self.short:
            return [*self.short[first], *words[1:]]
        if not self.fallback or first in (*self.choices, "-h", "--help"):
            return words
        is_word = first and not first.startswith("-")
        return words if is_word and not self.is_open else [self.fallback, *words]

    def declare(
        self, name: str, summary: str, runner: Runner, groups: Any = None, *, json: bool = True
    ) -> None:
        """Declare a command by name; its parser is built when it is chosen.

        Args:
            runner: see `Runner`.
            groups: its options; None: those of the verb, which may have commands instead.
        """
        self._choices_actions.append(self._ChoicesPseudoAction(name, (), summary))
        self._name_parser_map[name] = None
        self._declared[name] = summary, runner, groups, json

    def add(self, run: Callable[..., int | None], *groups: Any, json: bool = True) -> None:
        """Declare a command by its function, whose docstring begins with the summary."""
        sentence = (run.__doc__ or "").partition("\n")[0]
        summary = f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"
        self.declare(run.__name__, summary, run, groups, json=json)

    def add_alias(self, word: str, command: argparse.ArgumentParser, summary: str) -> None:
        """Add a word that selects the command of another verb."""
        self._choices_actions.append(self._ChoicesPseudoAction(word, (), summary))
        self._name_parser_map[word] = command

    def make(self, name: str) -> argparse.ArgumentParser:
        """Build the parser of a declared command, with its options."""
        summary, runner, groups, json = self._declared.pop(name)
        del self._name_parser_map[name]
        command = self.add_parser(name, description=f"{summary[:1].upper()}{summary[1:]}.")
        command.set_defaults(json=False, runner=runner)
        if groups is None:
            groups = import_module(".verb_options", __package__).OPTIONS.get(name)
        if groups is None:
            import_module(f".{runner}", __package__).add_options(command)
            json = False  # its commands have it
        for group in groups or ():
            group.add_to(command)
        if json:
            group_of(command, "output").add_argument(
                "--json", action="store_true", help="print one JSON object instead of text"
            )
        return command

    def make_all(self) -> None:
        """Build the parsers of all declared commands, including nested ones."""
        for name in list(self._declared):
            self.make(name)
        for parser in self.choices.values():
            parser.explain()
            for action in parser._actions:
                if isinstance(action, Commands):
                    action.make_all()

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Parse the words of a command; refuse options before it, which would be lost."""
        for option in parser._actions:
            given = getattr(namespace, option.dest, option.default) is not option.default
            if option.option_strings and given:
                flag = option.option_strings[-1]
                parser.error(f"{flag} goes after the command: {parser.prog} {values[0]} {flag}")
        if values[0] in self._declared:
            self.make(values[0])
        super().__call__(parser, namespace, values, option_string)


def group_of(parser: argparse.ArgumentParser, title: str, about: str | None = None) -> Any:
    """Return the option group with this title; create it if it does not exist."""
    for group in parser._action_groups:
        if group.title == title:
            return group
    return parser.add_argument_group(title, about)


def build_parser(*, whole: bool = False) -> argparse.ArgumentParser:
    """Build the parser of the whole command line; the chosen verb is in ``verb``.

    Args:
        whole: build every verb with its options at once, to inspect them.
    """
    from ... import __version__

    parser = OneLineParser(
        prog="triplepoint",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"triplepoint {__version__}")
    verbs = add_commands(parser, "verb", required=False)
    verbs.short = SHORT
    for name, summary in VERBS.items():
        verbs.declare(name, summary, name, json=name != "completion")
    if whole:
        verbs.make_all()
    return parser


def add_commands(
    parser: argparse.ArgumentParser,
    what: str = "command",
    *,
    required: bool = True,
    default: str = "",
    is_open: bool = False,
) -> Commands:
    """Add subcommands to a verb; the chosen one is in ``command``.

    Args:
        parser: of the verb.
        what: what they are called.
        required: whether one must be named.
        default: the default command; "" for none.
        is_open: whether words that are no command are the default one's.
    """
    commands: Any = parser.add_subparsers(
        dest=what,
        metavar=what.upper(),
        title=f"{what}s",
        required=required and not default,
        action=Commands,
    )
    commands.fallback, commands.is_open = default, is_open
    if default:
        whole = f"{parser.prog} {default}"
        parser.epilog = f"Without a command it is `{default}`; `{whole} --help` has its options."
    return commands


def commands_of(
    verb: str, summaries: Mapping[str, str], **settings: Any
) -> Callable[[argparse.ArgumentParser], None]:
    """Return the `add_options` of a verb whose commands are the modules of its package.

    Their options are in the package's `options`, so that the modules may import what is heavy.

    Args:
        verb: its name, and its package's.
        summaries: the commands.
        settings: as `add_commands` takes them.
    """

    def add_options(parser: argparse.ArgumentParser) -> None:
        options = import_module(f".{verb}.options", __package__).OPTIONS
        commands = add_commands(parser, **settings)
        for name, summary in summaries.items():
            commands.declare(name, summary, f"{verb}.{name}", options.get(name, ()))

    return add_options


def positive(text: str) -> int:
    """Parse a positive integer."""
    return whole(text, "a whole number above 0", lambda number: number > 0)


def whole(text: str, what: str, fits: Callable[[int], bool] = lambda _: True) -> int:
    """Parse a nonnegative integer for which `fits` holds; else raise an error that names `what`."""
    if not (text.isascii() and text.isdigit() and fits(int(text))):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not {what}")
    return int(text)


def numbers(text: str) -> list[int]:
    """Parse nonnegative integers separated by commas."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers like 36,512")
    return [int(part) for part in parts]
