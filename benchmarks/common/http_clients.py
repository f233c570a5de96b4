"""Processes that a benchmark talks to in lines of JSON, and the one among them with the HTTP clients."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

Prompts = list[list[int]]


class Program:
    """A process that takes lines of JSON and answers with lines of JSON."""

    def __init__(self, *command: object) -> None:
        pipe = subprocess.PIPE
        self._command = list(map(str, (sys.executable, *command)))
        self._process = subprocess.Popen(self._command, text=True, stdin=pipe, stdout=pipe)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def tell(self, **asked: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._command} died; its output is above")
        return json.loads(line)


class Clients(Program):
    """The process with the streaming clients."""

    def __init__(self) -> None:
        super().__init__(Path(__file__).parent / "http_reader.py")

    def stream(self, port: int, prompts: Prompts, n_tokens: int, *, is_kept: bool = False) -> Any:
        """Stream the continuations of all prompts at once, and check that each has all its tokens."""
        return self.complete(port, prompts, n_tokens, is_kept=is_kept)

    def complete(
        self, port: int, prompts: Prompts, n_tokens: int, *, is_streamed: bool = True, is_kept: bool = False
    ) -> Any:
        """Ask for the continuations of all prompts at once, as streams or whole; check that each has all its tokens."""
        streaming = {"stream": True, "stream_options": {"include_usage": True}} if is_streamed else {}
        bodies = [
            {
                "model": "default",
                "prompt": prompt,
                "max_tokens": n_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
                **streaming,
            }
            for prompt in prompts
        ]
        self.tell(port=port, path="/v1/completions", bodies=bodies, kept=is_kept, closed=not is_streamed)
        heard = self.hear()
        for answer in heard["answers"]:
            assert answer["status"] == 200, answer
            if is_streamed:
                assert answer["last"][-1] == "[DONE]", answer
            usage = json.loads(answer["last"][-2 if is_streamed else -1])["usage"]
            assert usage["completion_tokens"] == n_tokens, answer
        return heard
