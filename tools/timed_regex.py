"""Regular expressions with a time limit, which `re` lacks against exponential time."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from ..errors import SettingError

LIMIT_S = 10.0
_MATCHES, _NONE = 10, 11  # statuses that nothing else ends with
_PROGRAM = f"""
import json, re, sys
pattern, text, flags = json.load(sys.stdin)
sys.exit({_MATCHES} if re.search(pattern, text, flags) else {_NONE})
"""
_REPEATS = re.compile(r"[*+?{|]")  # without these the time has a bound: no process is needed


class RegexTimeoutError(Exception):
    """The match took longer than `LIMIT_S`."""


def searched(pattern: str, text: str, flags: re.RegexFlag = re.MULTILINE) -> bool:
    """Return whether the pattern matches anywhere in the text, as `re.search`.

    Raises:
        RegexTimeoutError: it takes too long to decide.
        SettingError: it cannot be decided, such as for lack of memory.
    """
    if not _REPEATS.search(pattern):
        return re.search(pattern, text, flags) is not None
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=json.dumps([pattern, text, int(flags)]).encode(),
            capture_output=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise RegexTimeoutError from None
    if done.returncode not in (_MATCHES, _NONE):
        message = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SettingError(f"the regex {pattern!r} cannot be searched for: {message}")
    return done.returncode == _MATCHES


# The first lines are reported at once, later ones some at a time: after a line that takes too long,
# no more than these are missing.
_CAPTURES = """
import json, re, sys
find = re.compile(json.loads(sys.stdin.buffer.readline()), re.I).search
for number, line in enumerate(sys.stdin.buffer):
    found = find(json.loads(line))
    # The first group that took part; all that matched where there is none.
    told = found and next((one for one in found.groups() if one is not None), found[0])
    sys.stdout.buffer.write(json.dumps(told).encode() + b"\\n")
    if number < 32 or number % 32 == 0:
        sys.stdout.buffer.flush()
"""


def captured(pattern: str, lines: list[str], seconds: float) -> list[str | None]:
    """Return for each line the first group's match, or the whole match without a group.

    Letters match in upper and lower case alike.

    Returns:
        One value for each line, None where nothing matches; fewer where the time was up.
    """
    send = "".join(f"{json.dumps(one)}\n" for one in (pattern, *lines)).encode()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CAPTURES],
            input=send,
            capture_output=True,
            timeout=seconds,
        ).stdout
    except subprocess.TimeoutExpired as error:
        done = error.stdout or b""
    whole = done[: done.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()]
