"""Models written as formulas."""
