"""A claim to have changed something, without a call that did."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.agents import END, MakeEngine, call

from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.harness.claims import NOT_CALLED, NOT_DONE
from triplepoint.tools import EditTools

WRITE = call("write_file", path="a.txt", content="x")


def asked(
    scripted: MakeEngine,
    folder: Path,
    *replies: str,
    acts: bool = True,
    task: str = "Write x to a.txt",
) -> list[str]:
    """What the harness says in a run with these replies, evidence aside."""
    tools = EditTools(folder) if acts else None
    agent = Agent(
        scripted(*(one + END for one in replies)), workspace=folder, tools=tools, policy="yes",
        trace=False, harness={"evidence": False},
    )  # fmt: skip
    agent.run(task)
    return [one.content for one in agent.messages if one.by]


@pytest.mark.parametrize(
    "claim",
    [
        "I have written x to a.txt.", "I've just saved it.", "I updated the file.",
        "The file a.txt has been created.", "Successfully renamed.", "Ich habe die Datei erstellt.",
        "Die Datei a.txt wurde gespeichert.", "He creado el archivo.", "我已写入文件。",
        "El archivo a.txt ha sido creado.", "已经保存。",
    ],
)  # fmt: skip
def test_a_claim_without_a_call_is_sent_back_once(
    scripted: MakeEngine, folder: Path, claim: str
) -> None:
    """Whoever claims it again is believed to be beyond help: the answer stands."""
    assert asked(scripted, folder, claim, claim) == [NOT_DONE]


def test_the_model_then_does_it(scripted: MakeEngine, folder: Path) -> None:
    """And its claim is true."""
    claim = "I have written x to a.txt."
    assert asked(scripted, folder, claim, WRITE, claim) == [NOT_DONE]
    assert (folder / "a.txt").read_text() == "x"


def test_a_call_that_is_only_shown_is_asked_for(scripted: MakeEngine, folder: Path) -> None:
    """The reply after it is a call; a question how to do it is answered by showing it."""
    shown = (
        'You can do it so:\n```json\n{"name": "write_file", "arguments": '
        '{"path": "a.txt", "content": "y"}}\n```\nThen look.'
    )
    assert asked(scripted, folder, shown, WRITE, "Done.") == [NOT_CALLED]
    assert (folder / "a.txt").read_text() == "x"
    assert asked(scripted, folder, shown, task="How is x written to a.txt?") == []


def test_what_is_no_false_claim(scripted: MakeEngine, folder: Path) -> None:
    """A call that did it, no claim, no tools that act; a call that failed did nothing."""
    assert asked(scripted, folder, WRITE, "I have written it.") == []
    assert asked(scripted, folder, "I have not written anything.") == []
    assert asked(scripted, folder, "Ich habe nichts geschrieben.") == []
    assert asked(scripted, folder, "The log was updated by ann at 10:05.") == []
    assert asked(scripted, folder, "I have written it.", acts=False) == []
    failed = call("write_file", path="../a.txt", content="x")
    assert asked(scripted, folder, failed, "I have written it.", "No.") == [NOT_DONE]
