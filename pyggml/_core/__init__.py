"""Helpers for all layers above: checks, declared fields, hints, logging, locks, and the compiled module."""
