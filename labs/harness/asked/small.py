"""Questions about the small folder of a computer at home."""

from __future__ import annotations

from .spec import Asked, ask

SMALL: tuple[Asked, ...] = (
    ask("log", "pi", "did the backup fail any night? what happened",
        lambda t: t.the("backup.log", r"FATAL .*(not mounted)")),
    ask("value", "pi", "Which port does the mqtt broker listen on?",
        lambda t: t.the("thermostat.ini", r"port = (\d+)")),
    ask("doc", "pi", "who wrote the thermostat script?",
        lambda t: t.the("readme.md", r"written by (\w+)")),
    ask("absent", "pi", "What is the wifi password of Zolderkamer?",
        lambda t: t.absent(r"psk\s*=", "password")),
    ask("count", "pi", "How many things are on my todo list?",
        lambda t: t.count("todo.txt", r"^- ")),
)  # fmt: skip
