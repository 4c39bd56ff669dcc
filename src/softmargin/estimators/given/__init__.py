"""What an estimator may be given in place of arrays."""
