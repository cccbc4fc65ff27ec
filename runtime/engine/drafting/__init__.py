"""Where drafts come from, how many pay, and what is learned from those that were verified."""
