"""Prompts whose answer either calls tools or has a given format: one grammar made of the two."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from pyggml.chat.prompts import ChatPrompt
from pyggml.errors import InvalidParameterError
from pyggml.schema.grammar import with_prefix

_ROOT = re.compile(r"^root ::= .*$", re.MULTILINE)
# Literals and character classes come first, so that text inside them is not taken for brackets or names.
_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^]\\]|\\.)*\]|[()]|\b(?:until-[0-9]+|space)\b\?? ?')


def with_format(prompt: ChatPrompt, calls: ChatPrompt, answer: ChatPrompt | None, form: str) -> ChatPrompt:
    """Return a prompt whose grammar allows calls, or an answer in a format.

    The prompts are of one conversation; ``calls`` and ``answer`` share their fallback schemas.

    Args:
        prompt: the prompt whose answer may call tools, and whose parser reads both kinds of answers.
        calls: the prompt whose answer must call tools.
        answer: the prompt whose answer must have the format, after any reasoning; None: ``form`` includes reasoning.
        form: GBNF grammar of the format.

    Raises:
        InvalidParameterError: the template begins the two kinds of answers differently.
    """
    rules, prefix = (form, "") if answer is None else (answer._grammar or "", answer.grammar_prefix)
    begins = max(calls.grammar_prefix, prefix, key=len)
    starts = [("calls-root", calls.grammar_prefix), ("answer-root", prefix)]
    if calls.grammar_lazy or not calls._grammar or any(start not in ("", begins) for _, start in starts):
        raise InvalidParameterError(
            "this chat template cannot combine tools with a json_schema, grammar, choices or regex for the answer: "
            "give only one of them, or use another template"
        )
    read = _without_space_after_reasoning(begins, prompt.thinking_ends)
    opening = json.dumps(read, ensure_ascii=False)
    roots = [rule if start == begins else f"{opening} {rule}" for rule, start in starts]
    root = f"root ::= {' | '.join(roots)}"
    grammar = "\n".join((root, with_prefix(_calls_alone(calls._grammar), "calls-"), with_prefix(rules, "answer-"), ""))
    return replace(
        prompt,
        grammar_lazy=False,
        grammar_prefix=read,
        trigger_patterns=(),
        trigger_tokens=(),
        preserved_tokens=tuple(dict.fromkeys((*prompt.preserved_tokens, *calls.preserved_tokens))),
        _grammar=grammar,
        _fallback_schemas=calls._fallback_schemas,
    )


def _calls_alone(grammar: str) -> str:
    """Remove the text and white space that most of the engine's grammars allow before calls.

    A model that begins with it, perhaps an answer in another format than the required one, could only end with a call.
    """
    depth = 0

    def kept(part: re.Match[str]) -> str:
        nonlocal depth
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        is_before = part[0].startswith(("until-", "space")) and depth == 0  # inside brackets it belongs to reasoning
        return "" if is_before else part[0]

    return _ROOT.sub(lambda root: _PARTS.sub(kept, root[0]), grammar)


def _without_space_after_reasoning(prefix: str, thinking_ends: Sequence[str]) -> str:
    """Remove the white space that follows reasoning at the end of a prefix, as it is removed from the grammars."""
    bare = prefix.rstrip()
    return bare if any(end.strip() and bare.endswith(end.strip()) for end in thinking_ends) else prefix
