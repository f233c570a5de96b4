"""The named chat formats of llama-cpp-python that models without a template of their own use.

Each is a declaration: the text around roles and messages. Where llama-cpp-python's format differs from the one that a
model was trained with, so does this one, since programs choose it by name to get these prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """The text around roles and messages.

    Attributes:
        roles: role -> the text that begins its messages; other roles are left out.
        system: the beginning of the prompt, with SYSTEM where the system message goes.
        default_system: the system message if there is none.
        system_only_if_given: leave out the beginning if there is no system message.
        before: text between the role and the message.
        after: texts behind every other message, in turn.
        empty: text behind the role of a message without text.
        end: text at the end of the prompt.
        asks: end the prompt with the assistant's role.
        stop: text that ends an answer; None: only the model's stop tokens do.
    """

    roles: Mapping[str, str]
    system: str = ""
    default_system: str = ""
    system_only_if_given: bool = False
    before: str = ""
    after: tuple[str, str] = ("", "")
    empty: str = ""
    end: str = ""
    asks: bool = True
    stop: str | None = None

    def render(self, messages: Sequence[Mapping[str, object]]) -> str:
        """Return the prompt of a conversation."""
        given = next((str(each["content"] or "") for each in messages if each["role"] == "system"), "")
        is_left_out = self.system_only_if_given and not given
        text = "" if is_left_out else self.system.replace("SYSTEM", given or self.default_system)
        turns = [(str(each["role"]), each.get("content")) for each in messages if each["role"] in self.roles]
        if self.asks:
            turns.append(("assistant", None))
        for i, (role, content) in enumerate(turns):
            says = f"{self.before}{content}{self.after[i % 2]}" if content and isinstance(content, str) else self.empty
            text += self.roles[role] + says
        return text + self.end


def _two(user: str, assistant: str) -> dict[str, str]:
    return {"user": user, "assistant": assistant}


def _header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


#: Formats that consist of a text around each message.
TEXT_FORMATS: Mapping[str, TextFormat] = {
    "llama-3": TextFormat(
        roles={role: _header(role) for role in ("system", "user", "assistant")},
        after=("<|eot_id|>", "<|eot_id|>"),
        stop="<|eot_id|>",
    ),
    "alpaca": TextFormat(
        roles=_two("### Instruction", "### Response"),
        system="SYSTEM\n\n",
        before=": ",
        after=("\n\n", "</s>"),
        empty=":",
        asks=False,
    ),
    "qwen": TextFormat(
        roles=_two("<|im_start|>user", "<|im_start|>assistant"),
        system="<|im_start|>system\nSYSTEM<|im_end|>\n",
        default_system="You are a helpful assistant.",
        before="\n",
        after=("<|im_end|>\n", "<|im_end|>\n"),
        empty="\n",
        stop="<|endoftext|>",
    ),
    "vicuna": TextFormat(
        roles=_two("USER", "ASSISTANT"), system=f"{_VICUNA} ", before=": ", after=(" ", "</s>"), empty=":"
    ),
    "oasst_llama": TextFormat(
        roles=_two("<|prompter|>", "<|assistant|>"),
        system="[INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\n",
        after=("</s>", "</s>"),
    ),
    "baichuan-2": TextFormat(roles=_two("<reserved_106>", "<reserved_107>"), system="SYSTEM"),
    "baichuan": TextFormat(roles=_two("<reserved_102>", "<reserved_103>"), system="SYSTEM"),
    "redpajama-incite": TextFormat(
        roles=_two("<human>", "<bot>"), system="SYSTEM\n", before=": ", after=("\n", "\n"), empty=":", stop="<human>"
    ),
    "phind": TextFormat(
        roles=_two("### User Message", "### Assistant"),
        system="### System Prompt\nYou are an intelligent programming assistant.\n\n",
        before=": ",
        after=("\n\n", "\n\n"),
        empty=":",
    ),
    "intel": TextFormat(
        roles=_two("### User:", "### Assistant:"),
        system="### System:\n{system_message}\n",  # llama-cpp-python does not fill it in
        before=": ",
        after=("\n", "\n"),
        empty=":",
    ),
    "mistrallite": TextFormat(
        roles=_two("<|prompter|>", "</s>\n<|assistant|>"), system="<|system|>SYSTEM</s>", after=(" ", " ")
    ),
    "zephyr": TextFormat(
        roles=_two("<|user|>\n", "<|assistant|>\n"),
        system="<|system|>\nSYSTEM</s>\n",
        before="\n",
        after=("</s>\n", "</s>\n"),
        empty="\n",
        stop="</s>",
    ),
    "pygmalion": TextFormat(
        roles=_two("<|user|>", "<|model|>"),
        system="<|system|>SYSTEM\n\n",
        before="\n",
        after=("\n\n", "\n\n"),
        empty="\n",
        stop="\n",
    ),
    "chatml": TextFormat(
        roles=_two("<|im_start|>user", "<|im_start|>assistant"),
        system="<|im_start|>system\nSYSTEM<|im_end|>\n",
        before="\n",
        after=("<|im_end|>\n", "<|im_end|>\n"),
        empty="\n",
        stop="<|im_end|>",
    ),
    "chatglm3": TextFormat(
        roles=_two("<|user|>", "<|assistant|>"), system="<|system|>\nSYSTEM", before="\n ", stop="</s>"
    ),
    "openchat": TextFormat(
        roles=_two("GPT4 Correct User: ", "<|end_of_turn|>GPT4 Correct Assistant: "),
        system="SYSTEM<|end_of_turn|><|end_of_turn|>\n",
        before="\n",
        after=("<|end_of_turn|>\n", "<|end_of_turn|>\n"),
        empty="\n",
        stop="<|end_of_turn|>",
    ),
    "gemma": TextFormat(
        roles=_two("<start_of_turn>user\n", "<start_of_turn>model\n"),
        after=("<end_of_turn>\n", "<end_of_turn>\n"),
        stop="<end_of_turn>\n",
    ),
}


def render_llama2(messages: Sequence[Mapping[str, object]]) -> str:
    """Return the prompt of Llama 2, whose first message follows the system message within the same brackets."""
    given = next((str(each["content"] or "") for each in messages if each["role"] == "system"), "")
    system = f"[INST] <<SYS>>\n{given}\n<</SYS>>" if given else ""
    roles, after = _two("<s>[INST]", "[/INST]"), (" ", "</s>")
    text = f"{system} "
    turns = [(roles[str(each["role"])], each.get("content")) for each in messages if each["role"] in roles]
    for i, (role, content) in enumerate(turns):
        says = content if isinstance(content, str) else ""
        if system and i == 0:
            text += f"{says}{after[0]}"
        else:
            text += f"{role}{says} {after[i % 2]}" if says else f"{role} "
    return f"{text}[/INST]"


def render_mistral(messages: Sequence[Mapping[str, object]]) -> str:
    """Return the prompt of Mistral's first models, without a system message."""
    text = ""
    for message in messages:
        content = message.get("content")
        if message["role"] == "user" and isinstance(content, str):
            text += f"[INST] {content}"
        elif message["role"] == "assistant" and content is not None:
            text += f" [/INST]{content}</s>"
    return f"{text} [/INST]"


def render_saiga(messages: Sequence[Mapping[str, object]]) -> str:
    """Return the prompt of Saiga, whose assistant is called bot."""
    turns = [(each["role"], each.get("content")) for each in messages if each["role"] in ("user", "bot", "system")]
    texts = [
        f"<s>{role}\n{content}</s>" if content and isinstance(content, str) else f"<s>{role}\n"
        for role, content in turns
    ]
    return ("".join(texts) + "<s>bot").strip()
