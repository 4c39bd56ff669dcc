"""What is not known beside the coefficients: missing entries and the noise of a regression."""
