"""API keys: the accounts that they belong to, limits on these, and fair queueing between them."""
