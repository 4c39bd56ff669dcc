"""Leave-one-out predictors, and the probabilities made from them."""
