"""Everything that README and docs ask the embedded model about the example's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint import Agent, Engine

EXAMPLE = Path(__file__).parents[3] / "examples" / "incident"  # pip does not install it
RETRY = ("Which file mentions retry?", "retry is mentioned in app.log")
HERE = (
    "Which files are in this folder?",
    "The folder holds: app.log, config/, notes.txt, runbooks/, worker.log",
)
LINE_2 = ("What is on line 2 of notes.txt?", "Line 2 says: A customer could not pay at 09:26.")
LINE_3 = ("What is on line 3 of notes.txt?", "Line 3 says: db-2 was restarted at 09:27 by Mira.")
DB_2 = (
    "Which files mention db-2?",
    "db-2 is mentioned in app.log, config/settings.ini, notes.txt",
)
APP = (
    "What's the error in app.log?",
    "The error is: payment: connection to db-2 refused after 3 retries",
)
WORKER = (
    "What's the error in worker.log?",
    "The error is: mail: template receipt-de.html not found",
)
CONVERSATIONS = {
    "README and api.md": [APP],
    "README, a session": [APP, ("What about worker.log?", WORKER[1])],
    "api.md, worker.log": [WORKER],
    "api.md, a folder": [
        ("Which files are in runbooks?", "The folder holds: database.md"),
    ],
    "cli.md, run": [RETRY],
    "cli.md, chat": [HERE, LINE_2],
    "cli.md and sessions.md": [
        DB_2,
        ("And which files mention db-1?", "db-1 is mentioned in app.log, config/settings.ini"),
    ],
    "api.md, db-2": [("Which file mentions db-2?", DB_2[1])],
    "recipes.md": [HERE, LINE_2, RETRY],
    "replay.md": [LINE_3],
    "examples/runs/chat": [HERE, LINE_2, WORKER],
    "examples/runs/search": [
        RETRY,
        ("Which file mentions db-2?", DB_2[1]),
        (
            "Which file mentions timeout?",
            "timeout is mentioned in config/settings.ini, runbooks/database.md",
        ),
        (
            "Which file mentions payment?",
            "payment is mentioned in app.log, config/settings.ini",
        ),
    ],
}


@pytest.mark.parametrize("place", CONVERSATIONS)
def test_the_questions_of_the_documents_are_answered(engine: Engine, place: str) -> None:
    """What a page asks, in its order in one conversation, gets the right answers."""
    agent = Agent(engine, workspace=EXAMPLE, trace=False)
    for question, answer in CONVERSATIONS[place]:
        assert agent.run(question).answer == answer
