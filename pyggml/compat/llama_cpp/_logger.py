"""The logger that programs turn down. pyggml itself logs to ``pyggml``, and prints nothing by default."""

import logging

logger = logging.getLogger("llama-cpp-python")


def set_verbose(verbose: bool) -> None:
    """Set the logger's level.

    Args:
        verbose: True: all messages; False: errors only.
    """
    logger.setLevel(logging.DEBUG if verbose else logging.ERROR)
