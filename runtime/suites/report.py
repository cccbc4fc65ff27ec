"""Reports of results as tables and as a page: scores, groups, wrong answers, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...traces.warehouse.page import page
from ...traces.warehouse.reports import Column, Found, Report
from .definition import Suite
from .results import Row
from .statistics import Score, accuracy, by_question, score

Section = tuple[Report, Found]

_NAMES = (Column("model", "model"), Column("setting", "setting"))


def sections(suite: Suite, rows: Sequence[Row]) -> list[Section]:
    """Return the non-empty tables of a suite's rows."""
    scores = score(suite, rows)
    found = [_scores(suite, scores), _groups(suite, rows), _misses(rows), _errors(rows)]
    return [section for section in found if section is not None]


def as_json(suite: Suite, rows: Sequence[Row]) -> dict[str, Any]:
    """Return a suite's scores, accuracy by group and wrong answers for JSON."""
    groups, wrong = _groups(suite, rows), _misses(rows)
    return {
        "suite": suite.name,
        "scores": [asdict(one) for one in score(suite, rows)],
        "groups": groups[1].rows if groups else [],
        "wrong": wrong[1].rows if wrong else [],
    }


def as_page(suite: Suite, rows: Sequence[Row]) -> str:
    """Render the tables of a suite's rows as one HTML page."""
    about = f"{len(suite.tasks):,} tasks, {suite.repeats:,} repeats; {len(rows):,} attempts"
    about += f". {suite.about}" if suite.about else ""
    return page(f"Evaluation: {suite.name}", about, sections(suite, rows))


def _scores(suite: Suite, scores: Sequence[Score]) -> Section:
    columns = [*_NAMES, Column("accuracy", "accuracy", "share")]
    columns += [Column("low", "from", "share"), Column("high", "to", "share")]
    columns += [Column(f"pass@{k}", f"pass@{k}", "share") for k in suite.k]
    columns += [
        Column("questions", "questions", "count"),
        Column("attempts", "attempts", "count"),
        Column("errors", "errors", "count"),
        Column("seconds", "time", "seconds"),
        Column("ttft_s", "TTFT", "seconds"),
        Column("tokens_per_s", "tok/s", "rate"),
        Column("steps", "steps", "rate"),
        Column("input_tokens", "input", "count"),
        Column("cached_tokens", "cached", "count"),
        Column("output_tokens", "output", "count"),
    ]
    if any(one.cost is not None for one in scores):
        columns.append(Column("cost", "cost", "money"))
        columns.append(Column("cost_of_right", "cost per right answer", "money"))
    rows = []
    for one in scores:
        row = {**asdict(one), **{f"pass@{k}": share for k, share in one.pass_at.items()}}
        rows.append({column.name: row[column.name] for column in columns})
    about = (
        "Accuracy of questions, with the 95 % Wilson interval over distinct questions; pass@k "
        "of tasks. Time, steps, tokens and cost are means per attempt; TTFT is the median."
    )
    report = Report("scores", "Models and settings", about, bar="accuracy")
    return report, Found(columns, rows)


def _groups(suite: Suite, rows: Sequence[Row]) -> Section | None:
    """Return the table of accuracy by group, a column per model and setting; None for one group."""
    rows = [row for row in rows if row["status"] != "error"]
    groups = sorted({key[2] for key, _ in by_question(rows)})
    if len(groups) < 2:
        return None
    cells = [(m.name, s.name) for m in suite.models for s in suite.settings]
    one_setting = len(suite.settings) == 1
    columns = [Column("group", "group", "text"), Column("questions", "questions", "count")]
    columns += [
        Column("/".join(cell), cell[0] if one_setting else " ".join(cell), "share")
        for cell in cells
    ]
    found = []
    for group in groups:
        mine = [_of_group(row, group) for row in rows]
        counts = [accuracy(r for r in mine if (r["model"], r["setting"]) == c) for c in cells]
        row: dict[str, Any] = {"group": group, "questions": max(c[0] for c in counts)}
        shares = {"/".join(c): n[1] for c, n in zip(cells, counts, strict=True)}
        found.append({**row, **shares})
    report = Report("groups", "By group", "Accuracy on each group's questions.")
    return report, Found(columns, found)


def _of_group(row: Row, group: str) -> Row:
    """Copy a row with the questions of one group only."""
    own = row.get("group", "")
    questions = [q for q in row["questions"] if q.get("group", own) == group]
    return {**row, "questions": questions}


def _misses(rows: Sequence[Row]) -> Section | None:
    """Return the table of wrongly answered questions, each with its first wrong answer."""
    found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for row in rows:
        if row["status"] == "error":
            continue
        for number, question in enumerate(row["questions"]):
            key = row["model"], row["setting"], row["task"], number
            one = found.setdefault(key, {"wrong": 0, "attempts": 0})
            one["attempts"] += 1
            if question["passed"]:
                continue
            one["wrong"] += 1
            one.setdefault("question", question["ask"])
            one.setdefault("answer", question["answer"])
            one.setdefault("why", why_wrong(question))
    columns = [
        *(*_NAMES, Column("task", "task", "text"), Column("wrong", "wrong", "count")),
        *(Column("attempts", "of", "count"), Column("question", "question", "text")),
        *(Column("why", "why", "text"), Column("answer", "answer", "text")),
    ]
    lines = [
        {"model": key[0], "setting": key[1], "task": key[2], **one}
        for key, one in found.items()
        if one["wrong"]
    ]
    if not lines:
        return None
    lines.sort(key=lambda row: (-row["wrong"] / row["attempts"], row["task"]))
    about = "Each question with a wrong answer: the first wrong answer and why it is wrong."
    return Report("misses", "What was wrong", about), Found(columns, lines)


def why_wrong(question: Row) -> str:
    """Summarize in a line why an answer did not pass."""
    parts = [] if question["status"] == "answered" else [question.get("message") or "no answer"]
    parts += [f"{c['check']}: {c['why']}" for c in question["checks"] if not c["passed"]]
    return "; ".join(parts)


def _errors(rows: Sequence[Row]) -> Section | None:
    """Return the table of attempts that a technical error ended, which the next eval repeats."""
    columns = [*_NAMES, Column("task", "task", "text"), Column("why", "why", "text")]
    found = [
        {**{name: row[name] for name in ("model", "setting", "task")}, "why": row["error"]}
        for row in rows
        if row["status"] == "error"
    ]
    if not found:
        return None
    about = "Neither right nor wrong: the next eval with this file repeats them."
    report = Report("errors", "Attempts that failed for technical reasons", about)
    return report, Found(columns, found)
