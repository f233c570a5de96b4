"""What a model is, and whether it will fit, before its weights are read."""
