"""The type that llama.cpp chooses for each tensor of a mix: a script for an interpreter that has
llama-cpp-python.

    PYTHON peer_types.py MODEL NUMBER,… OUT.json     NUMBER: `general.file_type`, negative: as if
                                                     there were an imatrix

Nothing is quantized. It uses that package and the standard library only.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_TENSOR = re.compile(r"^\[ *\d+/ *\d+\] +(\S+) +- .*?type = +(\w+), (.*)$", re.MULTILINE)


def chosen_types(python: str, model: Path, numbers: list[int]) -> dict[int, dict[str, str]]:
    """Type by tensor for each mix, by this script."""
    out = model.with_suffix(".json")
    arguments = [str(model), ",".join(map(str, numbers)), str(out)]
    subprocess.run([python, __file__, *arguments], check=True, timeout=600, capture_output=True)
    return {int(number): types for number, types in json.loads(out.read_text()).items()}


def _types(lib: Any, model: str, number: int, log: list[str]) -> dict[str, str]:
    log.clear()
    wanted = lib.llama_model_quantize_default_params()
    wanted.ftype, wanted.dry_run = abs(number), True
    if number < 0:
        wanted.imatrix = (lib.llama_model_imatrix_data * 1)()  # it ends at once
    failed = lib.llama_model_quantize(model.encode(), b"unused.gguf", ctypes.byref(wanted))
    text = "".join(log)
    assert not failed, text[-2000:]
    found = {}
    for name, before, rest in _TENSOR.findall(text):
        after = re.search(r"-> .*\((\w+)\)", rest)
        found[name] = (after[1] if after else before).upper()
    return found


def _main(model: str, numbers: str, out: str) -> None:
    import llama_cpp as lib  # pyright: ignore[reportMissingImports]

    log: list[str] = []
    listener = lib.llama_log_callback(lambda _, text, __: log.append(text.decode(errors="replace")))
    lib.llama_log_set(listener, ctypes.c_void_p(0))
    lib.llama_backend_init()
    found = {number: _types(lib, model, int(number), log) for number in numbers.split(",")}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
