"""An agent: the model calls a calculator and reads files below a folder, sees the results, and answers.

python examples/agent.py examples/data/handbook "How much do 14 washes cost?" -m model.gguf
"""

from __future__ import annotations

import argparse
import ast
import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

import pyggml

SYSTEM = "Use the tools for facts and calculations, then answer in one sentence."
MAX_FILES, MAX_FILE_CHARACTERS = 200, 8_000

OPERATORS: dict[type[ast.operator | ast.unaryop], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
}


def calculate(expression: Annotated[str, Field(pattern=r"^[0-9(][0-9 .()+*/%-]{0,40}$")]) -> float:
    """Calculate with numbers.

    Args:
        expression: such as 3 * 4 + 5.
    """

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(operand))
        raise ValueError(f"not a calculation: {ast.unparse(node)}")

    return value(ast.parse(expression.strip(), mode="eval").body)


class Files:
    """The text files below a folder, as a tool.

    The schema lists their names: the model cannot name another file, so no path needs a check.
    """

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.suffix in (".md", ".txt") and path.is_file())
        if not 0 < len(paths) <= MAX_FILES:
            raise ValueError(f"{folder} has {len(paths)} files .md and .txt; there must be 1 to {MAX_FILES}")
        self._paths = {str(path.relative_to(folder)): path for path in paths}

    def read_file(self, path: str) -> str:
        return self._paths[path].read_text("utf-8", errors="replace")[:MAX_FILE_CHARACTERS]

    @property
    def description(self) -> dict[str, Any]:
        """The tool in OpenAI's format; pyggml writes it itself for functions whose types say everything."""
        path = {"type": "string", "enum": list(self._paths)}
        parameters = {"type": "object", "properties": {"path": path}, "required": ["path"]}
        function = {"name": "read_file", "description": "Read a file.", "parameters": parameters}
        return {"type": "function", "function": function}


class Agent:
    """A model with tools, which works in rounds: it calls a tool and gets the result, or answers."""

    def __init__(self, llm: pyggml.LLM, folder: Path, max_rounds: int, must_call: bool) -> None:
        files = Files(folder)
        self._llm = llm
        self._tools: list[Any] = [calculate, files.description]
        self._functions: dict[str, Callable[..., object]] = {"calculate": calculate, "read_file": files.read_file}
        self._max_rounds = max_rounds
        self._must_call = must_call

    def answer(self, question: str) -> str:
        messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        for n in range(self._max_rounds):
            reply = self._chat(messages, "required" if self._must_call and n == 0 else "auto")
            if reply.finish_reason != "tool_calls":
                break
            messages.append(reply.message)
            for call in reply.message.tool_calls:
                messages.append({"role": "tool", "tool_call_id": call.id, "content": self._run(call)})
        else:  # the limit is reached
            reply = self._chat(messages, "none")
        return reply.message.content or f"(no answer: {reply.finish_reason})"

    def _chat(self, messages: list[Any], tool_choice: str) -> pyggml.ChatCompletion:
        return self._llm.chat(messages, self._tools, tool_choice=tool_choice, temperature=0, max_tokens=500)

    def _run(self, call: pyggml.ToolCall) -> str:
        """Run a call. The model sees an error, and may correct the call."""
        try:
            result = str(self._functions[call.name](**call.arguments))
        except (ValueError, ArithmeticError, SyntaxError, OSError) as error:
            result = f"error: {error}"
        print(f"  {call.name}({call.arguments_text}) returns {' '.join(result.split())[:60]}")
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with files to read")
    parser.add_argument("questions", nargs="+", metavar="question")
    parser.add_argument("-m", "--model", default=pyggml.SHIPPED_MODEL, help="GGUF file, directory or hf:org/repo")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds with tools (default: 5)")
    parser.add_argument("--must-call", action="store_true", help="the first round calls a tool: helps small models")
    args = parser.parse_intermixed_args()
    with pyggml.load(args.model) as llm:
        agent = Agent(llm, args.folder, args.rounds, args.must_call)
        for question in args.questions:
            print(question)
            print(agent.answer(question), end="\n\n")


if __name__ == "__main__":
    try:
        main()
    except (pyggml.InferError, OSError, ValueError) as error:
        sys.exit(f"agent.py: {error}")
