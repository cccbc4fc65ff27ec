"""Traces in the thousands: a database or a folder of Parquet files, and reports over it."""
