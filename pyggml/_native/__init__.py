"""Owners of C objects, and the options that they pass to the engine."""
