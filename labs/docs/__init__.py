"""What writes the generated parts of the pages in docs/."""
