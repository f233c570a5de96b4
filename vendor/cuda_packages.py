"""Find parts of NVIDIA's CUDA toolkit that are installed as Python packages, for cuda.cmake.

The packages of CUDA 13 share one folder, nvidia/cu13; before, each had its own: nvidia/cublas, nvidia/cuda_runtime ...
All have bin, include and lib in it, and the libraries only under their versioned names.

    python vendor/cuda_packages.py bin/nvcc lib/libcublas.so.13

prints for each file where it is, or an empty line.
"""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path


def package_folders() -> list[Path]:
    """Return the folders that may hold packages: Python's import path and its own site-packages.

    pip builds in an environment of its own, which hides the latter although the user installed the toolkit there.
    """
    named = [*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        named.append(site.getusersitepackages())
    return list(dict.fromkeys(Path(name) for name in named if name))


def find(name: str, folders: Iterable[Path]) -> Path | None:
    """Return the first file "bin/nvcc", "lib/libcublas.so.13" ... of an NVIDIA package in these folders.

    A file that is in packages of several versions is taken from the newest.
    """
    for folder in folders:
        parts = sorted((folder / "nvidia").glob("*"), reverse=True)  # cu14 before cu13
        found = next((part / name for part in parts if (part / name).is_file()), None)
        if found:
            return found
    return None


if __name__ == "__main__":
    where = package_folders()
    for name in sys.argv[1:]:
        print(find(name, where) or "")
