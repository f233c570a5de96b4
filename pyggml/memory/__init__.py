"""How much memory a model takes, and what fits."""
