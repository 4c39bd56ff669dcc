"""What a model is made of: the protocol of every kind of part, the model, the loop and the checks."""
