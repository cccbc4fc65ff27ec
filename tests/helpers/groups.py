"""Control groups as a container has them, in files of a test's own."""

from __future__ import annotations

from pathlib import Path


def system(tmp_path: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A /proc with 8 GB available and these groups, and a /sys/fs/cgroup with these files."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n")
    (proc / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        path = cgroups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return proc, cgroups
