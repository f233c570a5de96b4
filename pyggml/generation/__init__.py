"""From a prompt to tokens: jobs, the engine that computes them, and the ways to read what comes out."""
