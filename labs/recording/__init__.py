"""What is recorded for the repository: example runs, and the pictures of the docs."""
