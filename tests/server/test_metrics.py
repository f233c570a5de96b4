"""The server's metrics, read by Prometheus' own parsers and compared with the requests of the tests."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from support.paths import ROOT
from support.servers import servers

import pyggml
import pyggml.server
from pyggml.system import build_info

DOCS = ROOT / "docs" / "reference"
TABLE_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\| ", re.MULTILINE)

Labels = dict[str, str]


class Figures:
    """The figures of a server, as Prometheus reads them."""

    def __init__(self, url: str) -> None:
        answer = httpx.get(f"{url}/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        self.families = list(text_string_to_metric_families(answer.text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def series(self, name: str) -> set[tuple[tuple[str, str], ...]]:
        return {tuple(sorted(sample.labels.items())) for sample in self.samples if sample.name == name}

    def sum(self, name: str, **labels: str) -> float:
        """The sum of all series of that name with those labels."""
        return sum(
            sample.value for sample in self.samples if sample.name == name and labels.items() <= sample.labels.items()
        )


# Room for answers that take longer than anything that a test does meanwhile.
ROOMY: dict[str, Any] = {"n_ctx": 32_768}


@pytest.fixture
def url() -> Iterator[str]:
    """A server that has counted nothing yet."""
    with servers.serving(pyggml.server.create_app(pyggml.server.Settings(load=ROOMY))) as url:
        yield url


def execute(url: str, **body: Any) -> dict[str, Any]:
    """Runs a job, and returns its last event; {} if it is refused."""
    with httpx.stream("POST", f"{url}/execute", json={"prompt": "Once upon a time", **body}, timeout=60) as answer:
        found = servers.events([*answer.iter_lines()])
    return json.loads(found[-1][1]) if found else {}


def at_rest(url: str, ended: int) -> Figures:
    """The figures, once so many requests for jobs have ended."""

    def have_ended() -> bool:
        return Figures(url).sum("pyggml_requests_total", route="/execute") == ended

    servers.eventually(have_ended)
    return Figures(url)


@pytest.mark.slow
def test_the_counters_are_what_was_done(url: str) -> None:
    ends = [execute(url, max_tokens=n) for n in (5, 17, 40)]
    execute(url, model="stranger")
    execute(url, temperature="hot")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(execute, url, job_id="mine", max_tokens=100_000, ignore_eos=True, timeout_s=60)
        servers.eventually(lambda: httpx.post(f"{url}/cancel", json={"job_id": "mine"}).is_success)
        ends.append(running.result())
    ends.append(execute(url, max_tokens=100_000, ignore_eos=True, timeout_s=0.05))
    assert [end["reason"] for end in ends] == ["length", "length", "length", "cancelled", "timeout"]

    found = at_rest(url, 7)
    count, route = "pyggml_requests_total", {"route": "/execute", "protocol": "execute", "method": "POST"}
    model = httpx.get(f"{url}/health").json()["model"]
    assert found.sum(count, **route, outcome="ok", status="200", model=model) == 3
    assert found.sum(count, **route, outcome="cancelled", status="200", model=model) == 1
    assert found.sum(count, **route, outcome="timeout", status="200", model=model) == 1
    assert found.sum(count, **route, outcome="client_error", status="404", model="") == 1
    assert found.sum(count, **route, outcome="client_error", status="400", model="") == 1
    assert found.sum("pyggml_request_duration_seconds_count", route="/execute") == 7
    assert found.sum("pyggml_requests_in_flight", route="/execute") == 0
    assert found.sum("pyggml_requests_in_flight", route="/metrics") == 1

    assert found.sum("pyggml_prompt_tokens_total") == sum(end["prompt_tokens"] for end in ends)
    assert found.sum("pyggml_cached_tokens_total") == sum(end["cached_tokens"] for end in ends) > 0
    assert found.sum("pyggml_generated_tokens_total") == sum(end["generated_tokens"] for end in ends)
    for reason in ("length", "cancelled", "timeout"):
        expected = sum(end["reason"] == reason for end in ends)
        assert found.sum("pyggml_generations_total", model=model, finish_reason=reason) == expected

    started = [end["timings"] for end in ends if end["generated_tokens"]]  # a cancel may come before the first token
    assert found.sum("pyggml_time_to_first_token_seconds_count") == len(started) >= 3
    assert found.sum("pyggml_time_to_first_token_seconds_sum") >= sum(each["ttft_s"] for each in started)
    for name, part in (("queue_wait", "queue_s"), ("prefill", "prefill_s"), ("inter_token_latency", "itl_s")):
        expected = sum(each[part] for each in started)
        assert math.isclose(found.sum(f"pyggml_{name}_seconds_sum"), expected, rel_tol=1e-6)
    speeds = sum(each["tokens_per_s"] for each in started)
    assert math.isclose(found.sum("pyggml_tokens_per_second_sum"), speeds, rel_tol=1e-6)


def test_a_client_that_leaves_is_counted(url: str) -> None:
    body = {"prompt": "Once", "max_tokens": 100_000, "ignore_eos": True}
    for _ in range(3):
        with httpx.stream("POST", f"{url}/execute", json=body) as answer:
            next(answer.iter_lines())
    found = at_rest(url, 3)
    assert found.sum("pyggml_requests_total", outcome="disconnected", status="200") == 3
    assert found.sum("pyggml_generations_total", finish_reason="cancelled") == 3
    assert found.sum("pyggml_generations_total") == 3


@pytest.mark.slow
def test_a_full_queue_is_counted() -> None:
    settings = pyggml.server.Settings(load={**ROOMY, "n_parallel": 1, "max_queue": 1})
    with servers.serving(pyggml.server.create_app(settings)) as url, ThreadPoolExecutor(2) as pool:
        jobs = []
        for name, running, queued in (("first", 1, 0), ("second", 1, 1)):
            jobs.append(pool.submit(execute, url, job_id=name, max_tokens=100_000, ignore_eos=True, timeout_s=30))
            wanted = {"pyggml_generations_running": running, "pyggml_generations_queued": queued}
            servers.eventually(lambda wanted=wanted: all(Figures(url).sum(each) == n for each, n in wanted.items()))  # type: ignore[misc]
        refused = [httpx.post(f"{url}/execute", json={"prompt": "Once"}) for _ in range(4)]
        assert {answer.status_code for answer in refused} == {429}
        for name in ("first", "second"):
            assert httpx.post(f"{url}/cancel", json={"job_id": name}).is_success
        assert {job.result()["reason"] for job in jobs} == {"cancelled"}
        found = at_rest(url, 6)
        assert found.sum("pyggml_requests_total", status="429", outcome="client_error") == 4
        assert found.sum("pyggml_generations_queued") == 0


@pytest.mark.slow
def test_the_engine_is_asked(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        prompts = [f"There were {n} dogs and" for n in range(4)]
        ends = list(pool.map(lambda prompt: execute(url, prompt=prompt, max_tokens=60, ignore_eos=True), prompts))
    found = at_rest(url, 4)
    generated, steps = found.sum("pyggml_engine_tokens_total", phase="decode"), found.sum("pyggml_engine_steps_total")
    assert generated == sum(end["generated_tokens"] for end in ends) == 240
    assert 60 <= steps < generated, "they shared their forward passes"
    computed = sum(end["timings"]["computed_tokens"] for end in ends)
    assert found.sum("pyggml_engine_tokens_total", phase="prefill") == computed
    with pyggml.load(**ROOMY) as llm:
        assert found.sum("pyggml_context_cells") == llm.n_ctx
        assert found.sum("pyggml_generations_parallel") == llm.n_parallel
        assert found.sum("pyggml_model_size_bytes") == llm.model.size_bytes
        for kind, size in (("weights", llm.memory[0].weights_bytes), ("cache", llm.memory[0].cache_bytes)):
            assert found.sum("pyggml_memory_bytes", kind=kind, device="CPU") == size > 0
    assert found.sum("pyggml_context_cells", state="cached") > 0
    assert found.sum("pyggml_models_loaded") == found.sum("pyggml_model_loads_total", outcome="ok") == 1
    assert found.sum("pyggml_model_load_seconds_count") == 1
    assert found.sum("process_resident_memory_bytes") > found.sum("pyggml_memory_bytes")


@pytest.mark.slow
def test_what_clients_make_up_adds_no_series(url: str) -> None:
    execute(url, model="stranger")
    before = at_rest(url, 1)
    for n in range(20):
        execute(url, model=f"model-{n}", job_id=f"job-{n}")
        httpx.get(f"{url}/{n}", headers={"x-request-id": f"id-{n}"})
    after = at_rest(url, 21)
    new = after.series("pyggml_requests_total") - before.series("pyggml_requests_total")
    refused = {("method", "GET"), ("route", ""), ("protocol", ""), ("model", ""), ("status", "404")}
    assert new == {tuple(sorted({*refused, ("outcome", "client_error")}))}
    assert after.sum("pyggml_requests_total", route="", status="404") == 20


def test_servers_in_one_process_count_for_themselves() -> None:
    with servers.serving() as one, servers.serving() as other:
        execute(one, max_tokens=3)
        assert at_rest(one, 1).sum("pyggml_generated_tokens_total") == 3
        assert at_rest(other, 0).sum("pyggml_generated_tokens_total") == 0


def test_openmetrics_for_those_who_ask(url: str) -> None:
    execute(url, max_tokens=3)
    at_rest(url, 1)
    answer = httpx.get(f"{url}/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0,text/plain"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in openmetrics_families(answer.text)}  # type: ignore[no-untyped-call]
    assert families["pyggml_generated_tokens"].samples[0].value == 3
    engine = build_info().engine
    assert families["pyggml_build"].samples[0].labels == {"version": pyggml.__version__, "engine": engine}


def test_a_late_event_loop_shows() -> None:
    worker = pyggml.server.create_app().state.worker

    async def block() -> None:
        async with worker.running():
            await asyncio.sleep(0.1)
            time.sleep(0.8)
            await asyncio.sleep(0.05)

    asyncio.run(block())
    figures = worker.metrics.exposition("")[0].decode()
    n_looks, n_in_time = (
        float(re.search(rf"^pyggml_event_loop_delay_seconds_{which} (\S+)$", figures, re.MULTILINE)[1])  # type: ignore[index]
        for which in ("count", 'bucket{le="0.25"}')
    )
    assert n_in_time < n_looks


def test_names_follow_prometheus_rules(url: str) -> None:
    """As promtool checks them, and the documentation of Prometheus asks for."""
    for family in Figures(url).families:
        name = re.sub("_total$", "", family.name)
        assert re.fullmatch(r"(pyggml|process|python)(_[a-z]+)+", name)
        assert family.documentation
        assert family.type != "counter" or all(each.name.endswith("_total") for each in family.samples)
        assert family.type == "counter" or not any(each.name.endswith("_total") for each in family.samples)
        assert not re.search(r"_(ms|milliseconds|kb|mb|percent|gauge|counter|histogram|created)(_|$)", name)


@pytest.mark.slow
def test_the_documentation_has_every_figure_and_no_other(url: str) -> None:
    execute(url, max_tokens=3)
    at_rest(url, 1)
    described = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in TABLE_ROW.findall((DOCS / "server-metrics.md").read_text())
    }
    families = {_shown_name(each): each for each in Figures(url).families}
    assert described.keys() == families.keys()
    for name, family in families.items():
        labels = _labels(family) if family.samples else described[name][1]  # without API keys, those have no samples
        assert described[name] == (family.type, labels), name


def _shown_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> set[str]:
    return {label for sample in family.samples for label in sample.labels} - {"le"}


def test_the_dashboard_shows_figures_that_there_are(url: str) -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    families = Figures(url).families
    known = {_shown_name(each) for each in families}
    known |= {f"{each.name}_bucket" for each in families if each.type == "histogram"}
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    for expression in expressions:
        named = set(re.findall(r"\b(?:pyggml|process|python)_\w+", expression))
        assert named, expression
        assert named <= known, expression
        assert expression.count("(") == expression.count(")")
    for of_servers in (name for name in known if name.startswith("pyggml_") and not name.endswith("_bucket")):
        shown = any(re.search(rf"\b{of_servers}(_bucket)?\b", each) for each in expressions)
        assert shown or of_servers in {"pyggml_generated_tokens_total", "pyggml_model_load_seconds"}, of_servers


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    """The dashboard has the fields of Grafana's model, and no panel overlaps another."""
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    assert isinstance(dashboard["schemaVersion"], int)
    assert "id" not in dashboard, "which would be another dashboard's"
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0


def test_embeddings_are_counted(url: str) -> None:
    texts = ["The dog was happy.", "It rained.", "A cat."]
    n_tokens = 0
    for _ in range(2):
        answer = httpx.post(f"{url}/v1/embeddings", json={"input": texts, "model": ""}, timeout=60)
        assert answer.status_code == 200, answer.text
        n_tokens += answer.json()["usage"]["prompt_tokens"]
    figures = Figures(url)
    assert figures.sum("pyggml_embedding_texts_total") == 2 * len(texts)
    assert figures.sum("pyggml_embedding_tokens_total") == n_tokens
    assert 2 <= figures.sum("pyggml_embedding_passes_total") <= 2 * len(texts)
    assert figures.sum("pyggml_embedding_texts_waiting") == 0
