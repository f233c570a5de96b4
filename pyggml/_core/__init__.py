"""Helpers that every layer above may use: checks, declared fields, logging, locks, and the compiled module."""
