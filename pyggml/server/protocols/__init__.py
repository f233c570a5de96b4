"""The languages that the server speaks, one module each: what they ask for, in the terms of :mod:`pyggml.server`."""
