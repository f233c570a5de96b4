"""Record the JSON schemas of the answers that OpenAI's client expects, in tests/data/openai_forms.json.

Run it with an interpreter that has the `openai` package:

    python tools/record_openai_forms.py

Texts that explain the schemas are left out, and so are members that only OpenAI's own service sends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "openai_forms.json"
FORMS: dict[str, Any] = {
    "text_completion": Completion,
    "chat.completion": ChatCompletion,
    "chat.completion.chunk": ChatCompletionChunk,
}
LEFT_OUT = ("moderation", "audio", "annotations", "metadata", "service_tier", "function_call")


def bare(schema: Any) -> Any:
    """A schema without what does not decide whether a value matches."""
    if isinstance(schema, list):
        return [bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: bare(each) for name, each in value.items() if name not in LEFT_OUT}
        if key == "properties"
        else bare(value)
        for key, value in schema.items()
        if key not in ("title", "description", "default")
    }


def used(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with only the definitions that it refers to."""
    definitions, kept, text = schema.pop("$defs", {}), {}, json.dumps(schema)
    while new := [name for name in definitions if name not in kept and f'"#/$defs/{name}"' in text]:
        kept.update({name: definitions[name] for name in new})
        text = json.dumps([schema, kept])
    return {**schema, "$defs": kept}


def main() -> None:
    forms = {name: used(bare(model.model_json_schema())) for name, model in FORMS.items()}
    page = {"recorded_from": f"openai {openai.__version__}", **forms}
    lines = [f"{json.dumps(name)}: {json.dumps(form)}" for name, form in page.items()]
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
