"""The stages of gpu.py: one module each, with ``measure(setting, results)`` and ``report(results)``."""
