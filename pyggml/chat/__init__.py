"""Conversations: renders messages as a prompt, and parses the answer's text into a message.

:mod:`~pyggml.chat.templates`: renders prompts; :mod:`~pyggml.chat.prompts`: a prompt, and a parser of answers to it;
:mod:`~pyggml.chat.template_selection`, :mod:`~pyggml.chat.builtin_templates`: templates by name;
:mod:`~pyggml.chat.messages`, :mod:`~pyggml.chat.tools`: check what callers pass in;
:mod:`~pyggml.chat.quoting`: keeps special tokens in messages from ending a turn;
:mod:`~pyggml.chat.conversation`, :mod:`~pyggml.chat.request`, :mod:`~pyggml.chat.stream`: from messages to an answer.
"""

import sys

from pyggml._core.hints import HintedPackage
from pyggml.chat.prompts import ChatParser, ChatPrompt
from pyggml.chat.templates import ChatTemplates

__all__ = ["ChatParser", "ChatPrompt", "ChatTemplates"]

sys.modules[__name__].__class__ = HintedPackage  # "ollama.chat(...)" is a function
