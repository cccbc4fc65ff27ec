"""``triplepoint doctor``: this machine, the settings, and the files on disk."""

from ..arguments import commands_of

COMMANDS = {
    "check": "show what this CPU is and can do, and where files are stored; --agent tunes the "
    "harness for a model",
    "config": "show the settings and their sources: environment, config file or built-in",
    "cache": "list what triplepoint has cached; `cache clean` removes it",
}

add_options = commands_of("doctor", COMMANDS, default="check")
