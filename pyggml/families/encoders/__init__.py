"""Families of encoders, which embed texts or score pairs of them, and do not generate."""

from pyggml.families.encoders._refused import REFUSED

__all__ = ["REFUSED"]
