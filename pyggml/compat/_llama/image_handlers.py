"""Chat handlers for images by llama-cpp-python's names, which say that there is no support for images."""

from __future__ import annotations

import pyggml


class Llava15ChatHandler:
    """A chat handler for images, which pyggml does not support yet: making one raises InvalidParameterError."""

    def __init__(self, *args: object, **kwargs: object) -> None:  # noqa: ARG002
        """Refuse."""
        raise pyggml.InvalidParameterError(
            f"{type(self).__name__}: images are not supported yet; a chat without images needs no chat_handler"
        )


class MTMDChatHandler(Llava15ChatHandler):
    """As :class:`Llava15ChatHandler`."""


class Gemma4ChatHandler(MTMDChatHandler):
    """As :class:`Llava15ChatHandler`."""


class ObsidianChatHandler(Llava15ChatHandler):
    """As :class:`Llava15ChatHandler`."""


class MoondreamChatHandler(Llava15ChatHandler):
    """As :class:`Llava15ChatHandler`."""


class Llava16ChatHandler(Llava15ChatHandler):
    """As :class:`Llava15ChatHandler`."""


class NanoLlavaChatHandler(Llava15ChatHandler):
    """As :class:`Llava15ChatHandler`."""


class Llama3VisionAlphaChatHandler(Llava15ChatHandler):
    """As :class:`Llava15ChatHandler`."""


class MiniCPMv26ChatHandler(Llava15ChatHandler):
    """As :class:`Llava15ChatHandler`."""


class Qwen25VLChatHandler(Llava15ChatHandler):
    """As :class:`Llava15ChatHandler`."""


Llama3VisionAlpha = Llama3VisionAlphaChatHandler
