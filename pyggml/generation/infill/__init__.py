"""Infilling: text between a prefix and a suffix, by models with tokens for it (fill in the middle, FIM)."""
