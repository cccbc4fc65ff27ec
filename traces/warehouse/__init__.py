"""A warehouse of thousands of traces: a database or a folder of Parquet files, with reports."""
