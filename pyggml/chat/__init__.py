"""Conversations: messages to a prompt, and an answer's text to a message.

:mod:`~pyggml.chat.templates`: what templates make of messages and read out of answers;
:mod:`~pyggml.chat.messages`, :mod:`~pyggml.chat.tools`: what callers give;
:mod:`~pyggml.chat.quoting`: why a message cannot end its turn;
:mod:`~pyggml.chat.conversation`: an answer on its way; :mod:`~pyggml.chat.chatting`: the methods of LLM.
"""

from pyggml.chat.templates import ChatParser, ChatPrompt, ChatTemplates, template_text

__all__ = ["ChatParser", "ChatPrompt", "ChatTemplates", "template_text"]
