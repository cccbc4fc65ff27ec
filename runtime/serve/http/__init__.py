"""Requests before their format counts: bounds of connections, who may ask, errors, notes."""
