"""Requests from arrival to end: admission, execution, metrics and traces."""
