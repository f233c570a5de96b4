"""From a prompt to tokens: jobs, the engine that computes them, and streams that read the results."""
