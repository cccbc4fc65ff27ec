"""Suites: tasks with checks, asked of models under settings, over and over; what came of it."""
