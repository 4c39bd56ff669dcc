"""From arrays and options to a model and its fitted form."""
