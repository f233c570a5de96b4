"""Common parts of the stages: the device, the model, sizes, and the folder that keeps their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import large_models
from synthetic_models import Shape

Report = list[str]


@dataclass(frozen=True)
class Work:
    """Sizes of what is measured."""

    streams: tuple[int, ...] = (1, 8, 32, 128, 256)
    n_some: int = 32  # streams where one number of them is measured
    n_prompt: int = 128
    n_tokens: int = 128
    prompts: tuple[int, ...] = (512, 4096)  # of one stream
    first_token: int = 512
    depth: int = 32768
    moe: str = "qwen3-30b-a3b"
    moe_layers: int = 24
    served: tuple[int, ...] = (32, 128)
    schedules: int = 20
    arrivals: int = 10


SHORT = Work(
    streams=(1, 2, 4), n_some=4, n_prompt=8, n_tokens=8, prompts=(32, 128), first_token=32, depth=512,
    moe="tiny-moe", moe_layers=2, served=(2, 4), schedules=3, arrivals=2,
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A run of gpu.py.

    Attributes:
        device: as for pyggml.load.
        programs: folder of upstream's programs, built elsewhere; None: build them.
        folder: of results and logs.
    """

    device: str
    model: str
    ftype: str
    rounds: int
    is_short: bool
    programs: Path | None
    folder: Path

    @property
    def work(self) -> Work:
        return SHORT if self.is_short else Work()

    @property
    def shape(self) -> Shape:
        return large_models.shape_of(self.model)

    @property
    def path(self) -> Path:
        return large_models.model_file(self.shape, self.ftype)

    @property
    def is_cuda(self) -> bool:
        return self.device.lower().startswith("cuda")


class Results:
    """Results of a stage by name, kept in a file as soon as they are measured: what is there is not measured again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def __contains__(self, name: str) -> bool:
        return "error" not in self._values.get(name, {"error": ""})

    def get(self, name: str) -> Any:
        """A result; None if there is none, or if measuring it failed."""
        return self._values[name] if name in self else None

    @property
    def errors(self) -> dict[str, str]:
        return {name: value["error"] for name, value in self._values.items() if "error" in value}

    def keep(self, name: str, value: Any) -> None:
        self._values[name] = value
        text = json.dumps(self._values, indent=1, ensure_ascii=False)
        self._path.write_text(f"{text}\n", encoding="utf-8")

    def once(self, name: str, measure: Callable[[], Any]) -> None:
        """Measure a result unless it is there. An error is a result too: the others are measured all the same."""
        if name not in self:
            with self.watching([name]):
                self.keep(name, measure())
                print(f"{name}: {json.dumps(self._values[name])[:400]}", flush=True)

    def all_of(self, names: Iterable[str], measure: Callable[[list[str]], Iterator[tuple[str, Any]]]) -> None:
        """Measure those results that are not there, one after the other in one go."""
        missing = [name for name in names if name not in self]
        if missing:
            with self.watching(missing):
                for name, value in measure(missing):
                    self.keep(name, value)
                    print(f"{name}: {json.dumps(value)[:400]}", flush=True)

    def watching(self, names: list[str]) -> _Watch:
        return _Watch(self, names)


class _Watch:
    """A block in which results are measured: an error is kept for those that are still missing."""

    def __init__(self, results: Results, names: list[str]) -> None:
        self._results = results
        self._names = names

    def __enter__(self) -> None: ...

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        text = f"{type(error).__name__}: {error}"[-1500:]
        print(text, flush=True)
        for name in self._names:
            if name not in self._results:
                self._results.keep(name, {"error": text})
        return True


def table(head: list[str], rows: Iterable[list[str]]) -> Report:
    """A Markdown table whose columns, but the first, hold numbers."""
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def ratio(a: float | None, b: float | None) -> str:
    return "" if a is None or not b else f"{a / b:.3f}"
