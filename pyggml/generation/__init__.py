"""From a prompt to tokens: requests, the engine that computes them, and streams that read the results."""
