"""llama.cpp's answers, by `labs.bench`: in an interpreter that has llama-cpp-python, be it ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np

from labs.bench.exactness import LlamaCpp

VARIABLE = "TRIPLEPOINT_PEER_PYTHON"


def peer_python() -> str | None:
    """An interpreter that has llama-cpp-python: the one that the variable names, or this one."""
    for python in (os.environ.get(VARIABLE, ""), sys.executable):
        if python and shutil.which(python):
            found = subprocess.run([python, "-c", "import llama_cpp"], capture_output=True)
            if found.returncode == 0:
                return python
    return None


def theirs(python: str, path: Path, ids: list[int]) -> np.ndarray:
    """llama.cpp's logits of every position, cache in float32: float32 [len(ids), n_vocab]."""
    with closing(LlamaCpp(python, path, "f32", len(ids), threads=1)) as peer:
        return np.concatenate(list(peer.rows(ids)))


def greedy(python: str, path: Path, prompts: list[list[int]], count: int) -> list[list[int]]:
    """The likeliest `count` tokens after each prompt, cache in float32."""
    answers: list[list[int]] = [[] for _ in prompts]
    context = max(map(len, prompts)) + count
    with closing(LlamaCpp(python, path, "f32", context, threads=1)) as peer:
        for ids, answer in zip(prompts, answers, strict=True):
            *_, rows = peer.rows(ids)
            for position in range(len(ids), len(ids) + count):
                answer.append(int(rows[-1].argmax()))
                (rows,) = peer.rows(answer[-1:], position)
    return answers
