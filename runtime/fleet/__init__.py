"""Runs the same agent over many rows: on this machine, over servers, on a Ray cluster."""
