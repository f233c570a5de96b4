"""Likelihoods of texts: prompts with many continuations, in which every shared prefix is computed once."""
