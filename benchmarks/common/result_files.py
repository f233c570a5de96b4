"""JSON files in results/, which README and docs are made from."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "results"


def read(name: str) -> Any:
    """A kept result; None if there is none."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write(name: str, value: Any) -> None:
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(value, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """Return the machine and date of a measurement."""
    pairs = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    processor = {key.strip(): value.strip() for key, _, value in pairs}
    name = processor.get("model name", "unknown")
    if "AMD" in name:
        name += _generation(int(processor.get("cpu family", 0)), int(processor.get("model", 0)))
    return {
        "cpu": name,
        "cores": len(os.sched_getaffinity(0)),
        "date": dt.date.today().isoformat(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _generation(family: int, model: int) -> str:
    """Return the generation of an AMD processor, which its name in a virtual machine lacks."""
    if family == 25:
        return " (Zen 4)" if model >> 4 == 1 or model >> 4 >= 6 else " (Zen 3)"
    return " (Zen 5)" if family == 26 else ""
