"""The prefix cache: KV cache pages that sequences share, in memory and on disk."""
