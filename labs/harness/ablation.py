"""`python -m labs.harness.ablation MODEL.gguf --trees FOLDER --out FOLDER [--sample 40]`.

The agent with the harness whole, then with each policy of `DEFAULTS` the other way round: what is
on by default switched off, what is off switched on. OUT keeps a file of rows for each setting; who
comes back goes on where they end, and `labs.harness.compare` reads them. Differences are of a
setting less the whole: what a policy is worth is what its being off costs.

A policy that decided nothing about a question changes nothing when it is off: such a row is the
whole's. What each one decided is kept beside the rows of the whole.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from triplepoint import Agent, Engine
from triplepoint.runtime.agent.harness.defaults import DEFAULTS
from triplepoint.runtime.agent.harness.policy import Context, Decision, Policy

from .ask import asker
from .compare import Asked, difference, paired, summary
from .questions import Question, frozen, sample
from .runner import Row, append, ask_all, resume

if TYPE_CHECKING:
    from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
    from triplepoint.runtime.conversation.reply import Reply

WHOLE = "whole"


def settings() -> dict[str, Mapping[str, object]]:
    """Return the harness settings to test, by name; numbers are not policies."""
    switches = {name: on for name, on in DEFAULTS.items() if isinstance(on, bool)}
    turned = {
        f"{'without' if on else 'with'}-{name}": {name: not on} for name, on in switches.items()
    }
    return {WHOLE: {}, **turned}


def ablate(
    load: Callable[[], Engine],
    model: str,
    questions: Sequence[Question],
    room: Path,
    out: Path,
    say: Callable[[str], object] = print,
) -> dict[str, list[Row]]:
    """Ask the questions under each setting; return the rows by its name.

    Each setting loads the engine anew: else it would find the prompts of those before it in the
    cache, and cost nothing.
    """
    out.mkdir(parents=True, exist_ok=True)
    decided = _Decided(out / f"{model}-decided.jsonl")
    rows: dict[str, list[Row]] = {}
    for name, given in settings().items():
        say(f"{name}:")
        file = out / f"{model}-{name}.jsonl"
        off = name.removeprefix("without-") if name.startswith("without-") else ""
        known = resume(file)
        for row in rows.get(WHOLE, []):
            same = replace(row, by=name)
            if decided.nothing(row.id, off) and same.key not in known:
                append(same, file, lambda _: None)
        watch = decided.watch if name == WHOLE else lambda *_: None
        with load() as engine:
            rows[name] = ask_all(
                name, model, asker(engine, given, watch), questions, room, file, say
            )
    return rows


class _Decided:
    """Which policies decided something about which question, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._names: dict[str, set[str]] = {}
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            question, name = json.loads(line)
            self._names.setdefault(question, set()).add(name)

    def nothing(self, question: str, policy: str) -> bool:
        """Return whether a policy (if named) is known to have decided nothing about a question."""
        return bool(policy) and question in self._names and policy not in self._names[question]

    def note(self, question: str, name: str) -> None:
        """Record that a policy decided something."""
        names = self._names.setdefault(question, set())
        if name not in names:
            names.add(name)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps([question, name]) + "\n")

    def watch(self, question: Question, agent: Agent) -> None:
        """Record what the policies of an agent decide."""
        self.note(question.id, "")  # recorded even if no policy decides
        note = partial(self.note, question.id)
        watched = [_Watched(one, note) for one in agent.setup.harness.policies]
        agent.setup.harness.policies = tuple(watched)


class _Watched(Policy):
    """A policy, and a note where it decides something.

    Names alone count once the model calls: they are for the arguments of its calls.
    """

    def __init__(self, policy: Policy, note: Callable[[str], object]) -> None:
        self._policy, self._note = policy, note
        self._names = False

    def _noted(self, decision: Decision | None, *, called: bool = False) -> Decision | None:
        self._names |= decision is not None and bool(decision.names)
        if (decision is not None and replace(decision, names={}) != Decision()) or (
            called and self._names
        ):
            self._note(self._policy.name)
        return decision

    def before_turn(self, context: Context) -> Decision | None:
        """See `Policy.before_turn`."""
        return self._noted(self._policy.before_turn(context))

    def after_reply(self, context: Context, reply: Reply) -> Decision | None:
        """See `Policy.after_reply`."""
        called = reply.cut_call is not None
        return self._noted(self._policy.after_reply(context, reply), called=called)

    def after_result(self, context: Context, call: ToolCall, result: str) -> Decision | None:
        """See `Policy.after_result`."""
        return self._noted(self._policy.after_result(context, call, result), called=True)

    def close(self) -> None:
        """See `Policy.close`."""
        self._policy.close()


def table(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Render the results and costs of each setting, and its paired difference from the whole."""
    askers = {
        name: Asked(name, name, "", {(row.set, row.id): row for row in part})
        for name, part in rows.items()
    }
    width = max(map(len, rows))
    lines = [
        f"{'':<{width}}    n  right   from     to  wrong  prefilled  seconds  "
        f"{'right − whole':<22}wrong − whole"
    ]
    for name, part in rows.items():
        line = f"{name:<{width}} {summary(part)}"
        pairs = paired(askers[name], askers[WHOLE])
        if name != WHOLE and pairs:
            right, wrong = (difference(pairs, one).points for one in ("right", "wrong"))
            line += f"  {right:<22}{wrong}"
        lines.append(line)
    return lines


def main(argv: list[str] | None = None) -> int:
    """Ask, and print the table."""
    parser = argparse.ArgumentParser(prog="labs.harness.ablation", description=__doc__)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--trees", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="of the rows")
    parser.add_argument("--sample", type=int, default=40, metavar="N", help="a fixed N (40)")
    parser.add_argument("--threads", type=int, metavar="N", help="of the engine")
    args = parser.parse_args(argv)
    model, questions = Path(args.model).stem, sample(frozen(), args.sample)

    def load() -> Engine:
        return Engine.load(args.model, threads=args.threads)

    rows = ablate(load, model, questions, args.trees, args.out)
    print("\n".join(["", *table(rows)]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
