"""triplepoint.tools."""
