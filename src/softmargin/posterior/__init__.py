"""What is known of the coefficients after a fit."""
