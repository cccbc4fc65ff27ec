"""Passes: sequences and their requests, the batch scheduler, the runner."""
