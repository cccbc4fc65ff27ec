"""KV caches beyond one sequence: prefixes that others share, on disk, in files."""
