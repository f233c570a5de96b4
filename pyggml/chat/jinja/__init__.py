"""Chat templates as transformers renders them: jinja2 in a sandbox, within limits of time, depth and memory."""

from pyggml.chat.jinja.environment import JinjaTemplate, TemplateTooExpensiveError
from pyggml.chat.jinja.quoted_text import QuotedText, flags_of

__all__ = ["JinjaTemplate", "QuotedText", "TemplateTooExpensiveError", "flags_of"]
