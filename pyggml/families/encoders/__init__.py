"""Families of encoders, which embed texts or score pairs of them, and do not generate."""
