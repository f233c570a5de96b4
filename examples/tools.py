"""A model calls Python functions and sees what they return.

The demonstration model is too small to know when to call a tool, so this forces it to: ``tool_choice="required"``.
Models that were trained to use tools decide by themselves, with the default, "auto".
"""

from __future__ import annotations

from typing import Any, Literal

import pyggml


def count_legs(animal: Literal["dog", "bird", "fish"]) -> int:
    """Return how many legs an animal has.

    Args:
        animal: which one.
    """
    return {"dog": 4, "bird": 2, "fish": 0}[animal]


def main() -> None:
    """Asks, calls, and asks again."""
    tools = {count_legs.__name__: count_legs}
    messages: list[Any] = [{"role": "user", "content": "How many legs does a dog have?"}]
    with pyggml.load(n_ctx=1024) as llm:
        answer = llm.chat(messages, list(tools.values()), tool_choice="required")
        messages.append(answer.message)
        for call in answer.message.tool_calls:
            result = tools[call.name](**call.arguments)
            print(f"{call.name}(**{call.arguments}) returns {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})

        print(llm.chat(messages, list(tools.values()), tool_choice="none", max_tokens=30).message.content)


if __name__ == "__main__":
    main()
