"""Load test: N concurrent agents on a server; throughput, latencies, failures, prefix hits.

    triplepoint bench serve 8 -m synthetic:qwen3-0.6b:q4_0
    triplepoint bench serve 8 --url http://127.0.0.1:8080

Each agent is a thread that does what `load_work.Work` says and waits for every reply.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from ...interrupts import completed, held
from .load_client import ChatClient, Reply
from .load_work import Work

GOOD_TTFT_S, GOOD_TPOT_S = 2.0, 0.1  # what goodput asks for


@dataclass
class Job:
    """One agent's conversation; seconds from its start to its end, and its replies."""

    seconds: float = 0.0
    replies: list[Reply] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether one of its requests failed."""
        return any(reply.error for reply in self.replies)


@dataclass
class Load:
    """The results of a load test, for all agents."""

    work: Work
    """The work of the agents."""
    seconds: float = 0.0
    """Seconds from the first agent's beginning to the last one's end, pauses included."""
    jobs: list[Job] = field(default_factory=list)
    """The job of each agent."""

    @property
    def replies(self) -> list[Reply]:
        """The replies of all agents."""
        return [reply for job in self.jobs for reply in job.replies]

    @property
    def jobs_per_hour(self) -> float:
        """Completed jobs per hour."""
        return 3600.0 * sum(not job.failed for job in self.jobs) / self.seconds

    @property
    def failures(self) -> list[str]:
        """The error of each request that failed."""
        return [reply.error for reply in self.replies if reply.error]

    @property
    def good(self) -> float:
        """Share of the requests that met the TTFT and TPOT goals of goodput."""
        met = [
            not reply.error and reply.ttft_s <= GOOD_TTFT_S and reply.tpot_s <= GOOD_TPOT_S
            for reply in self.replies
        ]
        return sum(met) / (self.work.agents * self.work.turns)

    @property
    def prompt_tokens(self) -> tuple[int, int]:
        """Prompt tokens: all, and those that were not found in the prefix cache."""
        given = sum(reply.prompt for reply in self.replies)
        return given, given - sum(reply.cached for reply in self.replies)

    @property
    def new_tokens(self) -> int:
        """Prompt tokens of an ideal server that shares everything: each agent's last prompt, less
        the written replies in it, and the system prompt once."""
        done = [job.replies for job in self.jobs if job.replies]
        whole = sum(replies[-1].prompt - sum(r.written for r in replies[:-1]) for replies in done)
        return max(0, whole - self.work.system * max(0, len(done) - 1))  # 0: no usage was told

    @property
    def written(self) -> int:
        """Number of tokens of all replies."""
        return sum(reply.written for reply in self.replies)

    @property
    def early(self) -> int:
        """Number of replies that ended before the requested number of tokens."""
        return sum(r.written < self.work.reply for r in self.replies if not r.error)

    def quantile(self, what: str, share: float) -> float:
        """Return a quantile of ``ttft``, ``tpot`` (of replies) or ``gap`` (of pieces), in s."""
        replies = [reply for reply in self.replies if reply.times]
        if what == "gap":
            found = [b - a for reply in replies for a, b in itertools.pairwise(reply.times)]
        elif what == "tpot":
            found = [reply.tpot_s for reply in replies]
        else:
            found = [reply.ttft_s for reply in replies]
        return float(np.quantile(found, share)) if found else 0.0


def measure(work: Work, connect: Callable[[], ChatClient]) -> Load:
    """Run all agents at once; connect: makes each one's client."""
    load = Load(work)
    ready, over = threading.Barrier(work.agents + 1), threading.Event()
    clients: list[ChatClient] = []
    with ThreadPoolExecutor(work.agents) as threads:
        try:
            clients += (connect() for _ in range(work.agents))
            with held():
                jobs = [
                    threads.submit(_job, work, n, client, ready, over)
                    for n, client in enumerate(clients)
                ]
                ready.wait()
            began = time.perf_counter()
            for job in completed(jobs):
                job.result()  # the first that fails ends the others
            load.jobs = [job.result() for job in jobs]
            load.seconds = time.perf_counter() - began
        except BaseException:  # Ctrl-C too: the pool waits for its threads
            with held():
                over.set()
                ready.abort()
            for client in clients:
                client.stop()
            raise
    return load


def _job(
    work: Work, agent: int, client: ChatClient, ready: threading.Barrier, over: threading.Event
) -> Job:
    job, messages = Job(), [{"role": "system", "content": work.prompt}]
    script = list(work.script(agent))
    ready.wait()
    began = time.perf_counter()
    try:
        for pause, text in script:
            if over.wait(pause):
                break
            messages.append({"role": "user", "content": text})
            reply = client.ask(messages, work.reply)
            job.replies.append(reply)
            if reply.error:
                break
            messages.append({"role": "assistant", "content": reply.text})
    finally:
        client.close()
    job.seconds = time.perf_counter() - began
    return job
