"""The wheel and the sdist hold exactly what they should.

`PYGGML_TEST_WHEEL` names the wheel to look at; without it the tests build one in the build folder of the
checkout, where everything is compiled already. Neither needs an index.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from support.paths import ROOT

from pyggml._version import __version__
from pyggml.system import build_info

DIST_INFO = f"pyggml-{__version__}.dist-info"
LICENCES = {
    "LICENSE",
    "llama.cpp/AUTHORS",
    "llama.cpp/LICENSE",
    "llama.cpp/LICENSE-jsonhpp",
    "llama.cpp/LICENSE-llamafile",
    "pyggml/server/static/vendor/marked/LICENSE",
}

BILL = "sboms/pyggml.cdx.json"

# The first test waits for a wheel, which without ccache can mean compiling the engine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def build(kind: str, out: Path, settings: dict[str, str], source: Path = ROOT) -> Path:
    """Calls the build backend as pip would, and returns the file that it made."""
    code = f"from scikit_build_core.build import build_{kind}; build_{kind}({str(out)!r}, {settings!r})"
    # ninja and cmake of this environment, where the system has none that will do.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("PYGGML_TEST_WHEEL"):
        return Path(given)
    # The C++ tests stay in the build folder, where they are; they have no business in the wheel.
    return build("wheel", tmp_path_factory.mktemp("wheel"), {"cmake.define.PYGGML_BUILD_TESTS": "ON"})


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def package_files() -> set[str]:
    """The files of the checkout's package, without compiled ones."""
    files = (path for path in (ROOT / "pyggml").rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts and path.suffix != ".so"
    }


def is_engine_library(name: str) -> bool:
    """Says whether a name is one of a portable wheel's shared libraries."""
    return re.fullmatch(r"pyggml/lib(pyggml-ggml|pyggml-ggml-base|ggml-[\w.-]+)\.so", name) is not None


def test_the_wheel_holds_what_is_needed_and_nothing_else(names: set[str]) -> None:
    metadata = {f"{DIST_INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", BILL)}
    licences = {f"{DIST_INFO}/licenses/{name}" for name in LICENCES}
    expected = package_files() | metadata | licences | {"pyggml/_pyggml.abi3.so"}
    assert {name for name in names if not is_engine_library(name)} == expected
    assert {"pyggml/py.typed", "pyggml/_pyggml.pyi"} <= expected
    assert any(re.fullmatch(r"pyggml/assets/[^/]+\.gguf", name) for name in expected)


def test_a_portable_wheel_brings_the_variants_of_its_cpu(names: set[str]) -> None:
    libraries = {name for name in names if is_engine_library(name)}
    if not libraries:
        assert os.environ.get("PYGGML_TEST_PORTABLE") != "1", "the wheel is said to be portable"
        return
    assert {"pyggml/libpyggml-ggml.so", "pyggml/libpyggml-ggml-base.so"} <= libraries
    assert len([name for name in libraries if "/libggml-cpu-" in name]) > 1


def test_the_tag_says_stable_abi(wheel: Path) -> None:
    assert re.fullmatch(rf"pyggml-{re.escape(__version__)}-cp310-abi3-\w+\.whl", wheel.name)


def test_the_licences_have_their_texts(unpacked: Path) -> None:
    folder = unpacked / DIST_INFO / "licenses"
    for name in LICENCES - {"llama.cpp/AUTHORS"}:
        text = " ".join((folder / name).read_text(encoding="utf-8").split())
        assert "Permission is hereby granted, free of charge" in text, name
        assert "OTHER DEALINGS IN THE SOFTWARE." in text, name


def test_its_bill_of_materials_is_valid_and_true(unpacked: Path) -> None:
    text = (unpacked / DIST_INFO / BILL).read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["version"] == __version__
    parts = {part["name"]: part["version"] for part in with_their_parts(bill["components"])}
    scripts = json.loads((unpacked / "pyggml" / "server" / "static" / "vendor" / "versions.json").read_text())
    assert set(parts) == {"llama.cpp", "nlohmann-json", "llamafile-sgemm"} | set(scripts)
    assert f"llama.cpp {parts['llama.cpp']}" == build_info().engine
    assert all(parts.values())


def with_their_parts(components: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in components:
        yield each
        yield from with_their_parts(each.get("components", []))


def read_elf(*command: str | Path) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files with binutils")
def test_the_module_shows_nothing_but_its_entry(unpacked: Path) -> None:
    """Another copy of ggml in the process must not meet ours."""
    listing = read_elf("nm", "--dynamic", "--defined-only", unpacked / "pyggml" / "_pyggml.abi3.so")
    assert [line.split()[-1] for line in listing.splitlines()] == ["PyInit__pyggml"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files with binutils")
def test_the_libraries_find_each_other_wherever_the_wheel_lies(unpacked: Path) -> None:
    for library in (unpacked / "pyggml").glob("*.so"):
        dynamic = subprocess.run(["readelf", "-d", library], stdout=subprocess.PIPE, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
        ours = {name for name in needed if "ggml" in name or "llama" in name}
        assert all((library.parent / name).is_file() for name in ours), library.name
        assert re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic) == (["$ORIGIN"] if ours else []), library.name


def test_nothing_in_the_wheel_knows_where_it_was_built(unpacked: Path) -> None:
    here = os.fsencode(ROOT) + b"/"
    assert [path.name for path in unpacked.rglob("*") if path.is_file() and here in path.read_bytes()] == []


@pytest.mark.skipif("PYGGML_TEST_WHEEL" in os.environ, reason="that wheel was made in an unknown way")
@pytest.mark.skipif(shutil.which("ccache") is None, reason="without ccache the engine is compiled twice")
def test_another_folder_makes_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """There, and from files that are younger."""
    copy = tmp_path / "copy"
    for folder in ("csrc", "pyggml", "tools", "vendor"):
        leave_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, ignore=leave_out, copy_function=shutil.copy)
    for file in ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / file, copy)
    again = build("wheel", tmp_path / "wheel", {}, copy)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_sdist_takes_the_engine_along(tmp_path: Path) -> None:
    # Its own build folder: to CMake an sdist is another build, and the one of the checkout keeps its tests.
    sdist = build("sdist", tmp_path / "dist", {"build-dir": str(tmp_path / "build")})
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    tree = ROOT / "vendor" / "llama.cpp"
    engine = {path.relative_to(ROOT).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert engine <= names
    assert "vendor/llama.cpp/.sync-stamp" in names
    for needed in (
        "CMakeLists.txt",
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "vendor/sync.py",
        "csrc/pyggml.h",
    ):
        assert needed in names
    assert package_files() <= names
    strays = {name for name in names if name.startswith(("build/", ".venv/", "dist/", ".git/", ".ci/"))}
    assert strays == set()
