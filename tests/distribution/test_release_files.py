"""The files of a release agree with each other: workflows, templates, metadata, changelog, page of platforms."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cross_check
import portable_wheels
import pytest
import release_notes
import yaml
from support.paths import ROOT

from pyggml._version import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = PROJECT["project"]["urls"]["Homepage"]
SITE = PROJECT["project"]["urls"]["Documentation"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="an sdist has no workflows")


def workflow(name: str) -> dict[str, Any]:
    parsed = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))
    assert isinstance(parsed, dict)
    # YAML 1.1 takes the key "on" for a truth value.
    return {"on" if key is True else key: value for key, value in parsed.items()}


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [(f"{path.name}: {name}", job) for path in WORKFLOWS for name, job in workflow(path.name)["jobs"].items()]


def steps() -> list[dict[str, Any]]:
    return [step for _, job in jobs() for step in job.get("steps", [])]


def shell_commands() -> str:
    return "\n".join(step["run"] for step in steps() if "run" in step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_reads_only_unless_a_job_says_more(path: Path) -> None:
    assert workflow(path.name)["permissions"] == {"contents": "read"}


def test_jobs_have_a_time_limit() -> None:
    unlimited = [name for name, job in jobs() if "steps" in job and "timeout-minutes" not in job]
    assert unlimited == []


def test_workflows_call_what_exists() -> None:
    targets = set(re.findall(r"\bmake ([a-z-]+)", shell_commands()))
    assert {"test", "docs", "cuda-wheel", "cross-check"} <= targets
    assert targets <= set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    scripts = set(re.findall(r"\b(?:tools|\.ci)/[\w./-]+", shell_commands()))
    assert {"tools/release_notes.py", "tools/first_text.py"} <= scripts
    called = {job["uses"] for _, job in jobs() if "uses" in job}
    for name in {*scripts, *called}:
        assert (ROOT / name).is_file(), name


def test_actions_have_a_version() -> None:
    used = {step["uses"] for step in steps() if "uses" in step}
    assert used
    assert {action for action in used if not re.search(r"@(v\d+(\.\d+)*|release/v1)$", action)} == set()


def test_a_release_is_published_without_a_password() -> None:
    release = workflow("release.yml")
    assert release["on"] == {"push": {"tags": ["v*"]}}
    publish = release["jobs"]["publish"]
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"id-token": "write"}
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    assert "secrets." not in text
    assert "password:" not in text


def test_everything_that_a_release_publishes_was_built_by_it() -> None:
    built = {step["with"]["name"] for step in steps() if "upload-artifact@" in step.get("uses", "")}
    assert {"wheel-${{ matrix.system }}", "sdist"} <= built
    fetched = workflow("release.yml")["jobs"]["publish"]["steps"][0]["with"]
    assert fetched == {"pattern": "{wheel-*,sdist}", "path": "dist", "merge-multiple": True}


def test_workflows_say_that_they_have_never_run() -> None:
    for path in WORKFLOWS:
        comment = path.read_text(encoding="utf-8").split("\nname:")[0]
        assert "ever run" in comment, path.name


def test_tested_pythons_are_supported() -> None:
    entries = workflow("tests.yml")["jobs"]["test"]["strategy"]["matrix"]["include"]
    pythons = {entry["python"] for entry in entries}
    assert PROJECT["project"]["requires-python"] == ">=3.10"
    assert "3.10" in pythons
    found = re.search(r"^PYTHONS \?= (.*)$", MAKEFILE, re.MULTILINE)
    assert found
    assert {f"python{python}" for python in pythons} == set(found[1].split())


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_an_issue_template_parses(path: Path) -> None:
    template = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        assert all(link["url"].startswith((REPOSITORY, SITE)) for link in template["contact_links"])
        return
    assert {"name", "description", "labels", "body"} <= set(template)
    ids = [field["id"] for field in template["body"]]
    assert len(ids) == len(set(ids))
    assert any(field.get("validations", {}).get("required") for field in template["body"])


def test_addresses_agree() -> None:
    owner, name = REPOSITORY.removeprefix("https://github.com/").split("/")
    assert f"https://{owner}.github.io/{name}/" == SITE
    assert f'REPOSITORY = "{REPOSITORY}"' in (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    files = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.yml"), *(ROOT / ".github").rglob("*.md")]
    for file in files:
        others = re.findall(r"https://github\.com/pyggml/[\w-]+", file.read_text(encoding="utf-8"))
        assert set(others) <= {REPOSITORY}, file.name


def test_the_changelog_has_notes_of_a_version() -> None:
    assert release_notes.package_version() == __version__
    changelog = "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- New.\n\n## 0.1.0 (2026-11-28)\n\n- Old.\n"
    assert release_notes.notes(changelog, "0.2.0") == "- New."
    assert release_notes.notes(changelog, "0.1.0") == "- Old."
    assert release_notes.notes(changelog.replace(" (2026-12-01)", ""), "0.2.0") is None


def test_a_tag_of_another_version_is_refused() -> None:
    script = ROOT / "tools" / "release_notes.py"
    done = subprocess.run([sys.executable, script, "v9.9"], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"the tag is v9.9, but pyggml/_version.py has {__version__}: expected v{__version__}\n"


def test_the_page_of_platforms_covers_what_is_built_and_compiled() -> None:
    page = (ROOT / "docs" / "reference" / "platforms.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`((?:x86_64|aarch64)-[a-z-]+)`", page)) == set(cross_check.TARGETS)
    glibc = f"{portable_wheels.GLIBC[0]}.{portable_wheels.GLIBC[1]}"
    for name in portable_wheels.ARCHITECTURES:
        assert f"| Linux, glibc {glibc} and later | {name.replace('_', '-')} |" in page
    images = {PROJECT["tool"]["cibuildwheel"][f"manylinux-{name}-image"] for name in portable_wheels.ARCHITECTURES}
    assert images == {portable_wheels.ARCHITECTURES["x86_64"].tag.removesuffix("_x86_64")}


def test_states_of_platforms_are_those_that_the_page_explains() -> None:
    page = (ROOT / "docs" / "reference" / "platforms.md").read_text(encoding="utf-8")
    systems = page.split("## ")[0]
    states = set(re.findall(r"\| \*\*([a-z ]+)\*\*", systems))
    assert states == {"tested", "run", "run in an emulator", "compiles", "not supported"}
