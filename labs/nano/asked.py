"""The phrasings in `asked.txt`, one a line, by the name of their list."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

_SUBJECTS = (
    "nginx|postgres|the server|the app|the service|the backend|the frontend|the worker|the api|"
    "the database|the gateway|the proxy|redis|the cache|the cluster|the container|the pod|ssh|"
    "the scheduler|the queue|the site|the shop|the web server|our server|our app|my app|"
    "my server|my script|the script|the program|the daemon|the agent|the bot|the job|the cron job|"
    "the deploy|the build|the test run|the pipeline|the migration|the importer|the mailer|mysql|"
    "the backup|the monitor|the load balancer|docker|kubernetes|gunicorn|celery|rabbitmq|kafka|"
    "apache|haproxy|systemd|the client|the broker|the indexer|the crawler|the sync|staging|"
    "production|the staging box|prod|the machine|the host|the node|the router|the firewall|git|"
    "the runner|the compiler|python|java|node|the jvm|the vm|the payment service|the login"
)
SUBJECTS = tuple(_SUBJECTS.split("|"))
"""What questions are about, as people call it."""


@cache
def _sections() -> dict[str, tuple[str, ...]]:
    text = Path(__file__).with_name("asked.txt").read_text(encoding="utf-8")
    parts = re.split(r"^=== (\w+)\n", text, flags=re.MULTILINE)[1:]
    rows = (body.replace("?\n", "\n").strip("\n").split("\n") for body in parts[1::2])
    return {name: tuple(dict.fromkeys(body)) for name, body in zip(parts[::2], rows, strict=True)}


def asked(name: str) -> list[str]:
    """Return the phrasings of one list."""
    return list(_sections()[name])


def with_asked(ways: list[str], name: str, held_out: Iterable[str]) -> list[str]:
    """Mix `ways` and those of `asked.txt`, half of the draws each, without held-out ones."""
    new = sorted(set(asked(name)) - set(held_out))
    longer, shorter = max(ways, new, key=len), min(ways, new, key=len)
    return longer + shorter * max(1, round(len(longer) / len(shorter)))


def often(ways: list[str], short: Iterable[str], held_out: Iterable[str]) -> list[str]:
    """Mix `ways` and short ones, four in ten of the draws, as people type them."""
    kept = sorted(set(short) - set(held_out))
    return ways + kept * max(1, round(len(ways) * 0.67 / len(kept)))


def subject(rng: random.Random, word: Callable[[], str]) -> str:
    """Return a question's subject: a common one, or any word."""
    if rng.random() < 0.7:
        return rng.choice(SUBJECTS)
    return rng.choice(("the {}", "our {}", "my {}", "{}", "the {} service")).format(word())
