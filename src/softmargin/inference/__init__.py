"""How a model is fitted: the automatic choices."""
