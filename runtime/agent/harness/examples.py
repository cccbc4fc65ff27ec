"""Appends worked examples to the system message: short answers from lines of another folder.

Why: a very small model copies what it has seen done. Four took Qwen2.5-Coder-0.5B from 8 to 11 of
20 natural questions, but cost elsewhere: `doctor --agent` finds out whether they pay for a file.
They are in the constant prefix, which is cached on disk.
"""

from __future__ import annotations

EXAMPLES = """\
Examples of answers, about another folder than yours:

Most relevant lines:
etc/mail.conf:4: smtp_host = post.example.org
etc/mail.conf:9: backup_host = relay.example.org
Question: Which host does the mail use for its backup?
Answer: The backup host is relay.example.org.

Computed:
books.csv WHERE "genre" = 'poetry': count(*) = 12
Question: How many books are poetry?
Answer: 12 books are poetry.

Most relevant lines:
etc/archive.conf:2: retention_days = 90
Question: What is the password of the archive?
Answer: It is not there: no line says it."""


def with_examples(system: str) -> str:
    """Append the examples to a system message, once."""
    return system if EXAMPLES in system else f"{system}\n\n{EXAMPLES}".strip()
