"""CUDA wheels, tested without a CUDA build: the search for NVIDIA's packages, and the checks of a finished wheel."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.paths import ROOT

from pyggml.system import build_info

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def script(path: str) -> ModuleType:
    """A script of the checkout as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cuda_packages = script("vendor/cuda_packages.py")
cuda_wheel = script("tools/cuda_wheel.py")


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_parts_of_cuda_13_are_found_in_their_common_folder(tmp_path: Path) -> None:
    put(tmp_path, "nvidia/cu13/bin/nvcc", "nvidia/cu13/lib/libcublas.so.13")
    assert cuda_packages.find("bin/nvcc", [tmp_path]) == tmp_path / "nvidia/cu13/bin/nvcc"
    assert cuda_packages.find("lib/libcublas.so.13", [tmp_path]) == tmp_path / "nvidia/cu13/lib/libcublas.so.13"
    assert cuda_packages.find("lib/libcublas.so.12", [tmp_path]) is None


def test_parts_of_cuda_12_are_found_in_a_folder_each(tmp_path: Path) -> None:
    put(tmp_path, "nvidia/cublas/lib/libcublas.so.12", "nvidia/cuda_runtime/lib/libcudart.so.12")
    assert cuda_packages.find("lib/libcublas.so.12", [tmp_path]) == tmp_path / "nvidia/cublas/lib/libcublas.so.12"
    assert cuda_packages.find("lib/libcudart.so.12", [tmp_path]) == tmp_path / "nvidia/cuda_runtime/lib/libcudart.so.12"


def test_the_first_folder_that_has_a_part_counts_and_the_newest_version_in_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    put(second, "nvidia/cu13/bin/nvcc", "nvidia/cu14/bin/nvcc")
    assert cuda_packages.find("bin/nvcc", [first, second]) == second / "nvidia/cu14/bin/nvcc"
    put(first, "nvidia/cu13/bin/nvcc")
    assert cuda_packages.find("bin/nvcc", [first, second]) == first / "nvidia/cu13/bin/nvcc"


def test_site_packages_are_searched_even_where_pip_hides_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert any(folder.name == "site-packages" for folder in cuda_packages.package_folders())


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files with binutils")
def test_this_build_needs_only_what_every_machine_has() -> None:
    libraries = sorted(build_info().module.glob("*.so"))
    assert libraries
    for library in libraries:
        needed = cuda_wheel.needed_libraries(library)
        assert any(name.startswith("libc.so") for name in needed), library.name
        if library.name.startswith(("_pyggml", "libpyggml", "libggml-c")):
            assert cuda_wheel.foreign_libraries(library.name, needed) == [], library.name


@pytest.mark.parametrize(
    ("file", "needed", "foreign"),
    [
        ("_pyggml.abi3.so", ["libstdc++.so.6", "libpyggml-ggml.so", "libc.so.6", "ld-linux-x86-64.so.2"], []),
        ("libggml-cuda.so", ["libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libgcc_s.so.1"], []),
        ("libggml-cuda.so", ["libcuda.so.1"], ["libcuda.so.1"]),
        ("libggml-cuda.so", ["libnccl.so.2"], ["libnccl.so.2"]),
        ("_pyggml.abi3.so", ["libcudart.so.12"], ["libcudart.so.12"]),
        ("libpyggml-ggml.so", ["libggml-cuda.so"], ["libggml-cuda.so"]),
        ("libggml-cpu-haswell.so", ["libgomp.so.1"], ["libgomp.so.1"]),
    ],
)
def test_only_the_cuda_module_may_need_cuda(file: str, needed: list[str], foreign: list[str]) -> None:
    assert cuda_wheel.foreign_libraries(file, needed) == foreign


def test_the_extras_are_the_libraries_that_the_module_may_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for cuda, suffix in (("cuda12", "-cu12"), ("cuda13", "")):
        names = {re.split(r"[<>=;\s]", requirement)[0] for requirement in extras[cuda]}
        assert names == {f"nvidia-cuda-runtime{suffix}", f"nvidia-cublas{suffix}"}


def test_the_wheel_is_built_with_the_requirements_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert cuda_wheel.build_requirements() == project["build-system"]["requires"]


@pytest.mark.slow
def test_cuda_12_has_no_package_with_its_compiler() -> None:
    assert "nvcc" in cuda_wheel.toolkit_requirements("13.0")[0]
    assert "nvcc" not in cuda_wheel.toolkit_requirements("12")[0]
