"""Execution and batching policy: chosen from the machine's limits, corrected by pass times."""
