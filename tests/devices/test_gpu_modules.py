"""Modules of GPUs, in builds that have modules: when they are loaded, and what is reported of others.

A module made here, which counts how often it is loaded, is put next to a copy of the package under CUDA's name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyggml
from pyggml.system import build_info

COMPILER = shutil.which("cc")

pytestmark = [
    pytest.mark.skipif(not build_info().portable, reason="the backends of this build are part of its module"),
    pytest.mark.skipif(COMPILER is None, reason="compiles a module"),
]

#: As every backend: it is asked for itself once it is loaded. This one has nothing to give.
MODULE = """
#include <stdio.h>
#include <stdlib.h>

int made_up(void);

void * ggml_backend_init(void) {
    FILE * log = fopen(getenv("STARTS"), "a");
    fprintf(log, "%d\\n", made_up());
    fclose(log);
    return NULL;
}
"""

NEEDED = "int made_up(void) { return 13; }"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages: pyggml, with a module for CUDA that needs a library which is nowhere yet."""
    package = tmp_path / "site" / "pyggml"
    package.mkdir(parents=True)
    for path in Path(pyggml.__file__).parent.iterdir():
        if path.suffix != ".so":
            (package / path.name).symlink_to(path)
    for library in build_info().module.glob("*.so"):
        if not library.name.startswith("libggml-") or library.name.startswith("libggml-cpu"):
            shutil.copy(library, package)
    compile_library(NEEDED, tmp_path / "libmadeup.so.13")
    compile_library(MODULE, package / "libggml-cuda.so", str(tmp_path / "libmadeup.so.13"))
    return package.parent


def compile_library(source: str, library: Path, *needed: str) -> None:
    command = [COMPILER or "", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", *needed]
    command += [f"-Wl,-soname,{library.name}", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)


def run(site: Path, code: str) -> tuple[object, list[str]]:
    """Runs code with the copy of the package; returns what it printed as JSON, and each start of the module."""
    starts = site.parent / "starts"
    starts.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path]), "STARTS": str(starts)}
    # -S: without what an editable install puts in front of all folders.
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import json, os, threading, pyggml, pyggml.system\n{code}"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout), starts.read_text().split() if starts.exists() else []


def give_library(site: Path, folder: str) -> None:
    """Puts the library that the module needs where a package of NVIDIA's would have it."""
    place = site / "nvidia" / folder / "lib"
    place.mkdir(parents=True)
    shutil.move(site.parent / "libmadeup.so.13", place)


def test_the_import_and_a_model_on_the_cpu_load_no_gpu(site: Path) -> None:
    give_library(site, "cu13")
    code = 'print(json.dumps(len(pyggml.load(device="cpu").generate("Once", max_tokens=4).token_ids)))'
    n_tokens, starts = run(site, code)
    assert (n_tokens, starts) == (4, [])


def test_threads_that_ask_at_once_load_each_module_once(site: Path) -> None:
    give_library(site, "cu13")
    code = """
threads = [threading.Thread(target=pyggml.devices) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps([device.name for device in pyggml.devices()]))
"""
    assert run(site, code) == (["CPU"], ["13"])


@pytest.mark.parametrize("folder", ["cu13", "cuda_runtime"])
def test_a_library_in_a_package_of_nvidia_is_found(site: Path, folder: str) -> None:
    give_library(site, folder)
    refused, starts = run(site, "print(json.dumps(dict(pyggml.system.build_info().refused)))")
    assert starts == ["13"]
    assert isinstance(refused, dict)
    assert list(refused) == ["cuda"]


def test_a_library_that_is_nowhere_is_named(site: Path) -> None:
    (site.parent / "libmadeup.so.13").unlink()
    unloaded, starts = run(site, "print(json.dumps(dict(pyggml.system.build_info().unloaded)))")
    assert starts == []
    assert isinstance(unloaded, dict)
    assert "libmadeup.so.13" in unloaded["cuda"]


def test_a_model_for_any_device_goes_to_the_cpu(site: Path) -> None:
    code = 'print(json.dumps(len(pyggml.load().generate("Once", max_tokens=4).token_ids)))'
    assert run(site, code)[0] == 4


def test_a_child_that_was_forked_before_loads_its_own(site: Path) -> None:
    give_library(site, "cu13")
    code = """
child = os.fork()
pyggml.devices()
if child == 0:
    os._exit(len(pyggml.devices()))
print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""
    assert run(site, code) == (1, ["13", "13"])
