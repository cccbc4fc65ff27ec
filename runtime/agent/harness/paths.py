"""Paths that are there: an argument that must name what exists can be written as nothing else.

Why: small models call tools with paths that they make up, and take the error for the answer. The
names are those that evidence may see too: what the permissions hide is not among them. What the
person writes as a path may be written in any case, so that a tool says that it is not there. Where
calls are required and all tools want a file, nothing is held: no file might fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....tools.paths import printable
from ...evidence.catalog import Catalog
from ...evidence.naming import written
from ...evidence.reading import Texts
from .policy import Context, Decision, Policy

if TYPE_CHECKING:
    from ....tools import Tool
    from .evidence import EvidenceFirst

MOST = 20_000  # paths; of more folders the upper levels alone are held
MOST_ASKED = 8  # that the person writes
WALK = 1.0  # seconds that a question waits for the names; without all of them none is held
EARLIER = 2  # questions whose paths count too


@dataclass(slots=True)
class ExistingPaths(Policy):
    """Hold paths to those of the folder; see the module.

    Attributes:
        evidence: the policy that looks first, if it is on: both see the same catalog.
    """

    evidence: EvidenceFirst | None = None
    name = "paths"
    _catalog: Catalog | None = field(init=False, default=None)
    _written: tuple[object, str] = field(init=False, default=(None, ""))

    def before_turn(self, context: Context) -> Decision | None:
        """See `Policy.before_turn`."""
        files, permissions = context.files, context.permissions
        tools = [tool for tool in context.tools if tool.existing]
        if files is None or not tools or any(_root(tool) != files.root for tool in tools):
            return None
        if any(rule.action == "ask" for rule in permissions.rules):
            return None  # the catalog lacks what is asked about, which a call may ask for
        catalog = self._catalog
        if catalog is None or catalog.workspace is not files:
            if self.evidence is not None:
                catalog = self.evidence.gatherer(files, permissions).catalog
            else:
                catalog = Catalog(files, permissions, Texts(files))
            self._catalog = catalog
        if self.evidence is None or context.step > 1:  # else it has just looked
            end = time.monotonic() + WALK
            catalog.refresh(lambda: time.monotonic() > end)
        folders = dict.fromkeys(catalog.folders)
        key = catalog.version, [*folders], catalog.passed, catalog.links
        if key != self._written[0]:
            self._written = key, "\n".join(_bounded(_paths(catalog)))
        if not (paths := self._written[1]) or not catalog.whole:
            return None
        asked = [one.content for one in context.messages if one.role == "user" and not one.by]
        also = [
            name
            for text in (*asked[-EARLIER:], context.question)
            for name in written(text)
            if re.search(r"/|\w\.\w", name)
            and name.rstrip("/") not in catalog.files
            and name.rstrip("/") not in folders
        ]
        held = {tool.name: dict(tool.existing) for tool in tools}
        names = {"arguments": held, "paths": paths}
        return Decision(names={"names": names, "also": list(dict.fromkeys(also))[-MOST_ASKED:]})


def _root(tool: Tool[..., object]) -> object:
    """The folder that a tool looks at."""
    return getattr(getattr(tool.group, "workspace", None), "root", None)


def _paths(catalog: Catalog) -> Iterator[str]:
    """All that is there, as `Requirement.names` has it."""
    yield from catalog.files
    yield from (f"{path}/" for path in catalog.folders)
    # What a walk passes over is there, and what is below it is not known.
    found = (*catalog.passed, *catalog.links)
    yield from (f"{one}/" if one.endswith("/") else one for one in found if one == printable(one))


def _bounded(paths: Iterable[str]) -> list[str]:
    """As many levels as are few enough, in order; what is below is open. None where none is."""
    found = sorted(set(paths))
    if len(found) <= MOST:
        return found
    depths = sorted(path.rstrip("/").count("/") for path in found)
    deepest = depths[MOST] - 1
    upper = [path for path in found if path.rstrip("/").count("/") <= deepest]
    return [
        f"{p.rstrip('/')}//" if p[-1] == "/" and p.count("/") > deepest and p != "./" else p
        for p in upper
    ]
