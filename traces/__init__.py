"""triplepoint.traces."""
