"""Models in smaller types: which type each tensor gets, and how it is made."""
