"""Constrain path arguments that must exist to the paths of the workspace.

Why: small models call tools with paths that they make up, and take the error for the answer. The
names are those that evidence may see too: what the permissions hide is not among them. What the
person writes as a path may be written in any case, so that a tool says that it is not there.
"""

from __future__ import annotations

import re
import time
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

MAX_PATHS = 20_000  # paths; of more none is held
MAX_WRITTEN = 8  # that the person writes
WALK = 1.0  # seconds that a question waits for the names; without all of them none is held
EARLIER = 2  # questions whose paths count too
_PATH = re.compile(r"/|\w\.\w")


@dataclass(slots=True)
class ExistingPaths(Policy):
    """Policy that constrains path arguments to existing paths of the workspace."""

    evidence: EvidenceFirst | None = None
    """The evidence policy, if it is on, whose catalog is shared."""
    name = "paths"
    _catalog: Catalog | None = field(init=False, default=None)
    _written: tuple[object, str] = field(init=False, default=(None, ""))

    def before_turn(self, context: Context) -> Decision | None:
        """Set the allowed paths of the next reply; see `Policy.before_turn`."""
        files, permissions = context.files, context.permissions
        if files is None or any(rule.action == "ask" for rule in permissions.rules):
            return None  # the catalog lacks what is asked about, which a call may ask for
        tools = (one for one in context.tools if one.existing and _root(one) == files.root)
        held = {tool.name: dict(tool.existing) for tool in tools}
        if not held:
            return None
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
        folders, over = list(catalog.folders), [*catalog.passed, *catalog.links]
        key = catalog.version, folders, over
        if key != self._written[0]:
            found = {*catalog.files, *(f"{path}/" for path in folders)}
            # What a walk passes over is there, and what is below it is not known.
            found |= {one + "/" * one.endswith("/") for one in over if one == printable(one)}
            self._written = key, "\n".join(sorted(found) if len(found) <= MAX_PATHS else ())
        if not (paths := self._written[1]) or not catalog.whole:
            return None
        questions = [one.content for one in context.messages if one.role == "user" and not one.by]
        texts, there = (*questions[-EARLIER:], context.question), {*catalog.files, *folders}
        also = [name for text in texts for name in written(text) if _PATH.search(name)]
        also = [name for name in dict.fromkeys(also) if name.rstrip("/") not in there]
        names = {"arguments": held, "paths": paths}
        return Decision(names={"names": names, "also": also[-MAX_WRITTEN:]})


def _root(tool: Tool[..., object]) -> object:
    """Return the root folder of a tool's workspace; None if it has none."""
    return getattr(getattr(tool.group, "workspace", None), "root", None)
