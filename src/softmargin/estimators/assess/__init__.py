"""What is said of the rows of a fit: in ArviZ, and to compare models."""
