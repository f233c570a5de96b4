"""Fuzzers: what they make up must be answered or refused by name, and nothing may end the process or hang.

Told in README.md.
"""
