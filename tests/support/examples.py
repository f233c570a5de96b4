"""The programs of examples/, as users run them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import ModuleType

from support.paths import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))


def run(name: str, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run an example to its end."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)


def printed(name: str, *arguments: object, stdin: str = "") -> str:
    """The output of an example that ends in good order and does not complain."""
    done = run(name, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def module(name: str) -> ModuleType:
    """An example as a module, for its functions."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded
