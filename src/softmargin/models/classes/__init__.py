"""Models of more than two classes."""
