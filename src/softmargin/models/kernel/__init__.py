"""Models with a covariance function."""
