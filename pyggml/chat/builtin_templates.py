"""The engine's built-in chat templates, as Jinja text.

The engine formats these in C++ (``llama_chat_apply_template``, src/llama-chat.cpp), without tools, reasoning and
variables. As Jinja text they are rendered like all other templates. Names and output are the engine's: a test compares
every byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

# Placeholders in braces -> the Jinja expressions that replace them.
_EXPRESSIONS = {
    "content": "m['content']",
    "trimmed": "(m['content'] | trim)",
    "role": "m['role']",
    "Role": "(m['role'] | capitalize)",
    "ROLE": "('HUMAN' if m['role'] == 'user' else m['role'] | upper)",
}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")

_HAS_SYSTEM = "messages and messages[0]['role'] == 'system'"
# Whether a message begins what its speaker and the next one say: the first message, or one after an answer.
_OPENS = "loop.first or messages[loop.index0 - 1]['role'] not in ['system', 'user']"


def _turns(
    each: str = "",
    *,
    answer: str | None = None,
    before: str = "",
    opening: str = "",
    reopening: str | None = None,
    without_system: str = "",
    **by_role: str,
) -> str:
    """A template that writes message after message.

    Args:
        each: a message, for roles that are not in ``by_role``; "": leave them out.
        answer: the beginning of the answer; None: that of an assistant's message, up to its content.
        before: text before all messages.
        opening: text before the first message, and before one that follows an answer.
        reopening: the latter, if it is different.
        without_system: text before all messages if they do not begin with a system message.
        **by_role: a message of this role.
    """
    jinja = _text(before)
    if without_system:
        jinja += f"{{%- if not ({_HAS_SYSTEM}) -%}}{_text(without_system)}{{%- endif -%}}"
    jinja += "{%- for m in messages -%}"
    if opening:
        again = opening if reopening is None else reopening
        first = f"{{%- if loop.first -%}}{_text(opening)}{{%- else -%}}{_text(again)}{{%- endif -%}}"
        jinja += f"{{%- if {_OPENS} -%}}{first}{{%- endif -%}}"
    if answer is None:
        answer = by_role.get("assistant", each).replace("{role}", "assistant").partition("{")[0]
    return jinja + "".join(_branches(by_role, each)) + "{%- endfor -%}" + _answer(answer)


def _is_jinja(text: str) -> bool:
    return text.startswith(("{%-", "{{-"))


def _branches(by_role: Mapping[str, str], each: str) -> Iterator[str]:
    keyword = "if"
    for role, text in by_role.items():
        yield f"{{%- {keyword} m['role'] == '{role}' -%}}{text if _is_jinja(text) else _text(text)}"
        keyword = "elif"
    if by_role:
        yield f"{{%- else -%}}{_text(each)}{{%- endif -%}}"
    else:
        yield _text(each)


def _if_first(text: str) -> str:
    """Jinja that renders a text in the first message only."""
    return f"{{%- if loop.first -%}}{_text(text)}{{%- endif -%}}"


def _answer(text: str) -> str:
    return f"{{%- if add_generation_prompt -%}}{_text(text)}{{%- endif -%}}" if text else ""


def _text(text: str) -> str:
    """Jinja for a text with placeholders. Everything is an expression, so that no white space is trimmed."""
    parts = _PLACEHOLDER.split(text)
    literals = [json.dumps(text, ensure_ascii=False) if text else "" for text in parts[::2]]
    expressions = [_EXPRESSIONS[name] for name in parts[1::2]]
    terms = [term for pair in zip(literals, [*expressions, ""], strict=True) for term in pair if term]
    return "{{- " + " + ".join(terms) + " -}}" if terms else ""


def _merging(system: str, others: str, *, answer: str, into: str) -> str:
    """A template without system messages: their text goes in front of the next message that is ``into``.

    Args:
        system: Jinja expression for the text of a system message.
        others: Jinja for the other messages, with SYSTEM where the text goes.
        answer: the beginning of the answer.
        into: condition for such a message.
    """
    merged = (
        f"{{%- if ns.system and {into} -%}}{{{{- ns.system + '\\n\\n' -}}}}{{%- set ns.system = '' -%}}{{%- endif -%}}"
    )
    return (
        "{%- set ns = namespace(system='') -%}{%- for m in messages -%}{%- if m['role'] == 'system' -%}"
        f"{{%- set ns.system = ns.system + {system} -%}}{{%- else -%}}{others.replace('SYSTEM', merged)}"
        "{%- endif -%}{%- endfor -%}" + _answer(answer)
    )


def _mistral(before: str, after: str, answer: str) -> str:
    """Mistral's first three versions, which differ in their spaces."""
    return _turns(
        f"{after}{answer}</s>",
        answer="",
        opening=f"{before}[INST]{after}",
        system="{content}\n\n",
        user=f"{{content}}{before}[/INST]",
    )


def _mistral_7(space: str) -> str:
    return _turns(
        f"{space}{{content}}</s>",
        answer="",
        system=f"[SYSTEM_PROMPT]{space}{{content}}[/SYSTEM_PROMPT]",
        user=f"[INST]{space}{{content}}[/INST]",
    )


def _llama_2(system: str, *, content: str = "{content}", reopening: str = "[INST] ") -> str:
    return _turns(
        f"{content}</s>",
        opening="[INST] ",
        reopening=reopening,
        system=system.replace("{content}", content),
        user=f"{content} [/INST]",
    )


_SYS = "<<SYS>>\n{content}\n<</SYS>>\n\n"


def _exaone(**more: str) -> str:
    return _turns(
        system="[|system|]{trimmed}[|endofturn|]\n",
        user="[|user|]{trimmed}\n",
        assistant="[|assistant|]{trimmed}[|endofturn|]\n",
        **more,
    )


def _vicuna(system: str) -> str:
    return _turns(system=system, user="USER: {content}\n", assistant="ASSISTANT: {content}</s>\n", answer="ASSISTANT:")


_GRANITE = _turns("<|start_of_role|>{role}<|end_of_role|>{content}<|end_of_text|>\n")

#: Name -> Jinja text. Of formats with the same tokens, the one that more models have comes first.
BUILT_IN: dict[str, str] = {
    "chatml": _turns("<|im_start|>{role}\n{content}<|im_end|>\n"),
    "llama3": _turns("<|start_header_id|>{role}<|end_header_id|>\n\n{trimmed}<|eot_id|>"),
    "llama4": _turns("<|header_start|>{role}<|header_end|>\n\n{trimmed}<|eot|>"),
    "mistral-v1": _mistral(" ", " ", "{content}"),
    "mistral-v3": _mistral("", " ", "{trimmed}"),
    "mistral-v3-tekken": _mistral("", "", "{content}"),
    "mistral-v7": _mistral_7(" "),
    "mistral-v7-tekken": _mistral_7(""),
    "llama2": _llama_2("{content}\n"),
    "llama2-sys": _llama_2(_SYS),
    "llama2-sys-bos": _llama_2(_SYS, reopening="<s>[INST] "),
    "llama2-sys-strip": _llama_2(_SYS, content="{trimmed}"),
    "phi3": _turns("<|{role}|>\n{content}<|end|>\n"),
    "phi4": _turns("<|im_start|>{role}<|im_sep|>{content}<|im_end|>"),
    "gemma": _merging(
        "(m['content'] | trim)",
        "{{- '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n' -}}SYSTEM"
        + _text("{trimmed}<end_of_turn>\n"),
        into="m['role'] not in ['assistant', 'model']",
        answer="<start_of_turn>model\n",
    ),
    "falcon3": _turns("<|{role}|>\n{content}\n"),
    "zephyr": _turns("<|{role}|>\n{content}<|endoftext|>\n"),
    "monarch": (
        "{%- for m in messages -%}{%- if not loop.first -%}{{- '<s>' -}}{%- endif -%}"
        + _text("{role}\n{content}</s>\n")
        + "{%- endfor -%}"
        + _answer("<s>assistant\n")
    ),
    "orion": _merging(
        "m['content']",
        "{%- if m['role'] == 'user' -%}{{- 'Human: ' -}}SYSTEM"
        + _text("{content}\n\nAssistant: </s>")
        + "{%- else -%}"
        + _text("{content}</s>")
        + "{%- endif -%}",
        into="true",
        answer="",
    ),
    "openchat": _turns(
        "GPT4 Correct {Role}: {content}<|end_of_turn|>",
        system="{content}<|end_of_turn|>",
        answer="GPT4 Correct Assistant:",
    ),
    "vicuna": _vicuna("{content}\n\n"),
    "vicuna-orca": _vicuna("SYSTEM: {content}\n"),
    "deepseek": _turns(
        system="{content}",
        user="### Instruction:\n{content}\n",
        assistant="### Response:\n{content}\n<|EOT|>\n",
    ),
    "deepseek2": _turns(
        system="{content}\n\n",
        user="User: {content}\n\n",
        assistant="Assistant: {content}<｜end▁of▁sentence｜>",
        answer="Assistant:",
    ),
    "deepseek3": _turns(
        system="{content}\n\n",
        user="<｜User｜>{content}",
        assistant="<｜Assistant｜>{content}<｜end▁of▁sentence｜>",
    ),
    "deepseek-ocr": _turns("{content}"),
    "command-r": _turns(
        system="<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{trimmed}<|END_OF_TURN_TOKEN|>",
        user="<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{trimmed}<|END_OF_TURN_TOKEN|>",
        assistant="<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{trimmed}<|END_OF_TURN_TOKEN|>",
    ),
    "chatglm3": _turns("<|{role}|>\n {content}", before="[gMASK]sop", answer="<|assistant|>"),
    "chatglm4": _turns("<|{role}|>\n{content}", before="[gMASK]<sop>"),
    "glmedge": _turns("<|{role}|>\n{content}", answer="<|assistant|>"),
    "minicpm": _turns("{trimmed}", user="<用户>{trimmed}<AI>"),
    "exaone3": _exaone(),
    "exaone4": _exaone(tool="[|tool|]{trimmed}[|endofturn|]\n"),
    "exaone-moe": _turns(
        **{role: f"<|{role}|>\n{{trimmed}}<|endofturn|>\n" for role in ("system", "user", "assistant", "tool")},
    ),
    "rwkv-world": _turns(
        system="System: {trimmed}\n\n",
        user=_text("User: {trimmed}\n\n") + "{%- if loop.last -%}{{- 'Assistant:' -}}{%- endif -%}",
        assistant="Assistant: {trimmed}\n\n",
        answer="",
    ),
    "granite": _GRANITE,
    "granite-4.0": _GRANITE,
    "granite-4.1": _GRANITE,
    "gigachat": _turns(
        before="<s>",
        system=_if_first("{content}<|message_sep|>"),
        user="user<|role_sep|>{content}<|message_sep|>available functions<|role_sep|>[]<|message_sep|>",
        assistant="assistant<|role_sep|>{content}<|message_sep|>",
    ),
    "megrez": _turns("<|role_start|>{role}<|role_end|>{content}<|turn_end|>"),
    "yandex": _turns(
        user=" Пользователь: {content}\n\n", assistant=" Ассистент: {content}\n\n", answer=" Ассистент:[SEP]"
    ),
    "bailing": _turns("<role>{ROLE}</role>{content}", answer="<role>ASSISTANT</role>"),
    "bailing-think": _turns("<role>{ROLE}</role>{content}", answer="<role>ASSISTANT</role><think>"),
    "bailing2": _turns(
        "<role>{ROLE}</role>{content}<|role_end|>",
        without_system="<role>SYSTEM</role>detailed thinking off<|role_end|>",
        answer="<role>ASSISTANT</role>",
    ),
    "smolvlm": _turns(
        "Assistant: {content}<end_of_utterance>\n",
        before="<|im_start|>",
        system="{content}\n\n",
        user="User: {content}<end_of_utterance>\n",
        answer="Assistant:",
    ),
    "hunyuan-moe": _turns(
        "<|startoftext|>{content}<|extra_0|>",
        system="<|startoftext|>{content}<|extra_4|>",
        assistant="{content}<|eos|>",
    ),
    "hunyuan-dense": _turns(
        system=_if_first("{content}<｜hy_place▁holder▁no▁3｜>"),
        user="<｜hy_User｜>{content}<｜hy_Assistant｜>",
        assistant="<｜hy_Assistant｜>{content}<｜hy_place▁holder▁no▁2｜>",
        answer="",
    ),
    "hunyuan-vl": _turns(
        before="<｜hy_begin▁of▁sentence｜>",
        system=_if_first("{content}<｜hy_place▁holder▁no▁3｜>"),
        user="{content}<｜hy_User｜>",
        assistant="{content}<｜hy_Assistant｜>",
    ),
    "gpt-oss": _turns(
        "<|start|>{role}<|message|>{content}<|end|>",
        assistant="<|start|>{role}<|message|>{content}<|return|>",
        answer="<|start|>assistant",
    ),
    "kimi-k2": _turns(
        "{content}<|im_end|>",
        system="<|im_system|>system<|im_middle|>{content}<|im_end|>",
        user="<|im_user|>user<|im_middle|>{content}<|im_end|>",
        assistant="<|im_assistant|>assistant<|im_middle|>{content}<|im_end|>",
        tool="<|im_system|>tool<|im_middle|>{content}<|im_end|>",
    ),
    "seed_oss": _turns("<seed:bos>{role}\n{content}<seed:eos>", assistant="<seed:bos>{role}\n{trimmed}<seed:eos>"),
    "grok-2": _turns(
        system="System: {trimmed}<|separator|>\n\n",
        user="Human: {trimmed}<|separator|>\n\n",
        assistant="Assistant: {content}<|separator|>\n\n",
        answer="Assistant:",
    ),
    "pangu-embedded": _turns(
        without_system="[unused9]系统：[unused10]",
        system="[unused9]系统：{content}[unused10]",
        user="[unused9]用户：{content}[unused10]",
        assistant="[unused9]助手：{content}[unused10]",
        tool="[unused9]工具：{content}[unused10]",
    ),
    "solar-open": _turns("<|begin|>{role}<|content|>{content}<|end|>", answer="<|begin|>assistant"),
}
