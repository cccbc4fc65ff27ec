"""What made the product and is not in it: run from the checkout, never part of the wheel."""
