"""Tests of the clients that cannot share an environment with others, because they pin packages that others need newer.

``make test-clients`` runs them all. Each has a dependency group in pyproject.toml, ``client-NAME``, an environment in
``build/clients`` without pyggml, and ``tests/clients/test_NAME.py``, which talks to a server of this environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / "tests"))

from support.servers.servers import ServerProcess

GROUPS = nox.project.load_toml("pyproject.toml")["dependency-groups"]
CLIENTS = [name.removeprefix("client-") for name in GROUPS if name.startswith("client-")]

nox.options.envdir = "build/clients"
nox.options.reuse_venv = "yes"


@nox.session
@nox.parametrize("name", CLIENTS, ids=CLIENTS)
def client(session: nox.Session, name: str) -> None:
    """Test one client against a server of the demonstration model."""
    session.install("--upgrade", *GROUPS[f"client-{name}"])
    # Not the fixtures of tests/conftest.py, which imports pyggml.
    command = ["pytest", "-p", "no:cacheprovider", "--confcutdir=tests/clients", f"tests/clients/test_{name}.py"]
    with ServerProcess() as server:
        session.run(*command, env={"PYGGML_URL": server.url})
