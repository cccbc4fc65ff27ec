"""Builders of forward passes: a model's equations as ops on a tape."""
