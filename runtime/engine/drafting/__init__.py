"""Speculative decoding: sources of drafts, draft lengths, statistics of verified drafts."""
