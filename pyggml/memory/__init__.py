"""How much memory a model takes, and what would fit."""
