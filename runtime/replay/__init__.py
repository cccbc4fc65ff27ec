"""A recorded run again."""
