"""triplepoint.runtime.cli."""
