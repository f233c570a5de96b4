"""Implementation of ``pyggml.compat.llama_cpp``."""
