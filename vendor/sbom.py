"""Write the software bill of materials (SBOM) of a wheel: its third-party components.

    python vendor/sbom.py VERSION OUT       VERSION is pyggml's own

CycloneDX 1.6 as JSON, which goes into the wheel's `.dist-info/sboms`, where auditing tools look (PEP 770). What an
installer fetches besides, numpy for one, is in the wheel's METADATA and is not repeated. Every version is read from
where it is kept: the engine's lock, the header of the library, the list of the server page's scripts.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import sync

SCRIPTS = sync.VENDOR.parent / "pyggml" / "server" / "static" / "vendor" / "versions.json"
JSON_HEADER = sync.TREE / "vendor" / "nlohmann" / "json.hpp"


def component(name: str, version: str, licence: str, purl: str, **more: Any) -> dict[str, Any]:
    licences = [{"license": {"id": licence}}]
    facts = {"type": "library", "bom-ref": purl, "name": name, "version": version, "licenses": licences, "purl": purl}
    return {**facts, **more}


def engine() -> dict[str, Any]:
    """llama.cpp with ggml, and third-party code in their tree."""
    lock = sync.read_lock(sync.LOCK)
    return component(
        "llama.cpp",
        lock.build,
        "MIT",
        f"pkg:github/ggml-org/llama.cpp@{lock.build}",
        description="the engine, with ggml, which lies in the same tree",
        pedigree={"notes": f"from {lock.folder} in the sdist of {lock.package} {lock.version}, sha256 {lock.sha256}"},
        components=[
            component("nlohmann-json", json_version(), "MIT", f"pkg:github/nlohmann/json@v{json_version()}"),
            component(
                "llamafile-sgemm",
                lock.build,
                "MIT",
                f"pkg:github/ggml-org/llama.cpp@{lock.build}#ggml/src/ggml-cpu/llamafile",
                description="matrix products from llamafile, as llama.cpp keeps them",
            ),
        ],
    )


def json_version() -> str:
    text = JSON_HEADER.read_text(encoding="utf-8")
    parts = (re.search(rf"#define NLOHMANN_JSON_VERSION_{part} +(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH"))
    return ".".join(found[1] for found in parts if found)


def scripts() -> list[dict[str, Any]]:
    """Scripts of the server's page."""
    listed = json.loads(SCRIPTS.read_text(encoding="utf-8"))
    return [
        component(name, facts["version"], facts["license"], f"pkg:npm/{name}@{facts['version']}")
        for name, facts in listed.items()
    ]


def bill(version: str) -> dict[str, Any]:
    """The document. Reproducible: the same source gives the same file."""
    package = {**component("pyggml", version, "MIT", f"pkg:pypi/pyggml@{version}"), "bom-ref": "pyggml"}
    parts = [engine(), *scripts()]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": package},
        "components": parts,
        "dependencies": [{"ref": "pyggml", "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def main(version: str, out: str) -> None:
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(json.dumps(bill(version), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
