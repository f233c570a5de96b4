"""What the command line asks: which model, and perhaps a question to answer once."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pyggml.cli.arguments.model import is_model, looks_like_model, one_model
from pyggml.cli.arguments.prompt import piped_text


def model_and_question(words: Sequence[str], model: str | None, prompt: str | None) -> tuple[str | None, str | None]:
    """Tells the model from the question.

    Args:
        words: the arguments: a model, a question, or both in this order. A question may be several words.
        model: the value of the option ``--model``.
        prompt: the value of the option ``--prompt``.

    Returns:
        The model, None for the one that ships with pyggml; and the question, None for a chat.

    Raises:
        click.UsageError: there are two models or two questions.
    """
    if words and (looks_like_model if model is None else is_model)(words[0]):
        named, *words = words
        model = one_model(model, named)
    if words and prompt is not None:
        raise click.UsageError("a question and --prompt were both given: choose one")
    return model, " ".join(words) if words else prompt


def with_standard_input(question: str) -> str:
    """The question, after the text that was piped to the command, as a paragraph of its own.

    Raises:
        click.ClickException: that is not UTF-8.
    """
    piped = piped_text("QUESTION")
    return f"{piped}\n\n{question}" if piped else question
