"""From requests to results: sequences, the scheduler that makes batches, the runner of passes."""
