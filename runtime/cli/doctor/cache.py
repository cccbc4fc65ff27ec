"""``triplepoint doctor cache``: list the files on disk, and remove the caches."""

from __future__ import annotations

import argparse
import shutil

from ....errors import SettingError
from ...hub.progress import size_text
from ..exit_codes import Exit
from ..output import Output
from ..removing import confirmed, report_removed
from .disk_usage import DiskUsage, disk_usage


def run(args: argparse.Namespace, output: Output) -> int:
    """List the caches; for ``clean``, ask for confirmation and remove them."""
    everything = disk_usage()
    if args.action == "ls":
        _show(everything, output)
        output.json([_json(one) for one in everything])
        return Exit.OK
    doomed = [one for one in everything if one.ours]
    if args.kinds:
        doomed = [_of_kind(kind, everything) for kind in dict.fromkeys(args.kinds)]
    _show(doomed, output)
    if doomed and not confirmed(args, output):
        return Exit.USAGE
    for one in doomed:
        if one.path.is_dir():
            shutil.rmtree(one.path)
        else:
            one.path.unlink(missing_ok=True)
    report_removed([_json(one) for one in doomed], sum(one.nbytes for one in doomed), output)
    return Exit.OK


def _of_kind(kind: str, everything: list[DiskUsage]) -> DiskUsage:
    found = {one.kind: one for one in everything}
    if kind not in found:
        known = ", ".join(one.kind for one in everything if one.ours)
        raise SettingError(f"no cached files of the kind {kind!r}; choose from: {known or 'none'}")
    if not found[kind].ours:
        verb = {"models": "rm", "traces": "trace rm", "sessions": "session rm"}[kind]
        raise SettingError(f"{kind} are not a cache; remove them with: triplepoint {verb}")
    return found[kind]


def _show(found: list[DiskUsage], output: Output) -> None:
    width = max((len(one.kind) for one in found), default=0)
    for one in found:
        files = f"{one.files} file{'s' * (one.files != 1)}"
        size = f"{size_text(one.nbytes):>8}"
        output.line(f"{one.kind.ljust(width)}  {size}  {files:>12}  {one.what}, {one.path}")


def _json(one: DiskUsage) -> dict[str, object]:
    return {
        "kind": one.kind,
        "what": one.what,
        "path": str(one.path),
        "files": one.files,
        "bytes": one.nbytes,
        "cache": one.ours,
    }
