"""Conversations: renders messages as a prompt, and parses the answer's text into a message.

:mod:`~pyggml.chat.templates`: renders prompts and parses answers;
:mod:`~pyggml.chat.messages`, :mod:`~pyggml.chat.tools`: check what callers pass in;
:mod:`~pyggml.chat.quoting`: keeps special tokens in messages from ending a turn;
:mod:`~pyggml.chat.conversation`: generates an answer; :mod:`~pyggml.chat.chatting`: the chat methods of LLM.
"""

import sys

from pyggml._habits import AnsweredPackage
from pyggml.chat.templates import ChatParser, ChatPrompt, ChatTemplates, template_text

__all__ = ["ChatParser", "ChatPrompt", "ChatTemplates", "template_text"]

sys.modules[__name__].__class__ = AnsweredPackage  # "ollama.chat(...)" is a function
