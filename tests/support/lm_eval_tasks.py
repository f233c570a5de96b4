"""Three small tasks of lm-evaluation-harness, made of this project's data: one for each kind of request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"
#: Task -> whether its prompts are conversations.
TASKS = {"pyggml_choice": False, "pyggml_rolling": False, "pyggml_generate": True}
#: Sequences are longer than this, so that both sides have to cut them.
MAX_LENGTH = 256
#: Results of lm-eval's "hf", by tools/record_lm_eval.py.
RECORDED = DATA / "lm_eval_hf.json"

_N = 40
_SHARED = {"dataset_path": "json", "test_split": "test"}
_TEMPLATES: Mapping[str, Mapping[str, Any]] = {
    "pyggml_choice": {
        "output_type": "multiple_choice",
        "description": "The capital of Spain is Madrid. The sky is blue. Grass is green.\n\n",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "choices",
        "doc_to_target": "target",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "pyggml_rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "byte_perplexity"}, {"metric": "bits_per_byte"}],
    },
    "pyggml_generate": {
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 24, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    },
}


def write(directory: Path) -> Path:
    """Writes the tasks, for lm-eval's ``include_path``."""
    directory.mkdir(parents=True, exist_ok=True)
    for task, template in _TEMPLATES.items():
        rows = directory / f"{task}.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in _rows(task)))
        content = {"task": task, **_SHARED, "dataset_kwargs": {"data_files": {"test": str(rows)}}, **template}
        (directory / f"{task}.yaml").write_text(json.dumps(content, indent=1))  # YAML has JSON
    return directory


def evaluate(model: Any, directory: Path, *, tasks: Sequence[str] = tuple(TASKS), **options: Any) -> dict[str, Any]:
    """Evaluates a model, and returns the metrics and the single results of each task."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(write(directory)), include_defaults=False)
    found = {}
    for task in tasks:
        done = simple_evaluate(
            model=model,
            tasks=[task],
            task_manager=manager,
            apply_chat_template=TASKS[task],
            bootstrap_iters=0,
            **options,
        )
        results = done["results"][task].items()
        metrics = {name: value for name, value in results if name.endswith(",none") and "stderr" not in name}
        samples = sorted(done["samples"][task], key=lambda sample: sample["doc_id"])
        found[task] = {"metrics": metrics, "samples": [_plain(sample["resps"]) for sample in samples]}
    return found


def _plain(values: Any) -> Any:
    """Nested lists of numbers, flags and texts."""
    return [_plain(value) for value in values] if isinstance(values, (list, tuple)) else values


def _rows(task: str) -> Iterator[dict[str, Any]]:
    if task == "pyggml_choice":
        facts = _lines("demo_facts.jsonl")
        for number in range(_N):
            # The right answer first, then those of questions far away, turned around by the number.
            choices = [" " + facts[(number + 61 * step) % len(facts)]["answer"] for step in range(4)]
            turn = number % 4
            yield {
                "question": facts[number]["question"],
                "choices": choices[-turn:] + choices[:-turn] if turn else choices,
                "target": turn,
            }
    elif task == "pyggml_rolling":
        text = (DATA / "lighthouse.txt").read_text()
        yield {"text": text}
        for paragraph in text.split("\n\n"):
            yield {"text": paragraph}
    else:
        yield from _lines("demo_sums.jsonl")[: 20 * _N : 20]


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]
