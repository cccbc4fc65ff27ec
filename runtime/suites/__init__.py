"""Evaluation suites: tasks with checks, run repeatedly on models and settings, and scored."""
