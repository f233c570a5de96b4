"""The GPUs of this machine, and why one is not used: hardware, driver, run-time libraries or build.

Asks the system, never the engine, so that it works where the engine does not start.
"""
