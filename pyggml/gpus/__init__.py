"""Detection of GPUs, and diagnosis of unused ones: hardware, driver, run-time libraries or build.

It queries the system and not the engine, so it works even if the engine does not start.
"""
