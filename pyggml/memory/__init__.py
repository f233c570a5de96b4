"""Memory planning: the memory that a model needs, and options that fit."""
