"""Test a checkout on a GPU: build it, run the tests marked gpu and benchmarks/gpu.py, and write a report.

    python tools/gpu_proof.py                         everything: under eight minutes on 16 cores
    python tools/gpu_proof.py --only tests bench      some stages, with what earlier ones left
    python tools/gpu_proof.py --only bench --measure streams profile     some stages of the benchmark
    python tools/gpu_proof.py --wheel FILE --programs FILE               with what was built elsewhere
    python tools/gpu_proof.py --device cpu            the same walk on a machine without a GPU

It needs Python, a C++ compiler and CUDA, as a toolkit or as Python packages. The rest comes from the package index. On
a machine without a network, ``--offline FOLDER`` takes the engine's source distribution (``*.tar.gz``) and wheels from
a folder, and whatever packages the Python that runs this has::

    python -m pip download --no-deps --no-binary xllamacpp -d FOLDER xllamacpp==VERSION     # of vendor/llama.cpp.lock
    python -m pip download --only-binary :all: -d FOLDER cffi

With ``--wheel`` and ``--programs`` nothing is compiled, and only tests need the engine's sources: ``make cuda-wheel``
makes the one, ``python benchmarks/common/llama_cpp_programs.py --pack FILE`` the other.

Each stage has a time limit and a log, and a stage that fails does not keep the others from running. All of it goes to
build/gpu, where report.md is what to read.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "gpu"
PYTHON = FOLDER / "venv" / "bin" / "python"
UPSTREAM = ROOT / "build" / "upstream" / "llama.cpp"

#: To build; to import, and for the tests of TESTS; for the server that is measured. What each is for is said in
#: pyproject.toml.
BUILDING = ("scikit-build-core>=1.1", "cmake>=3.26", "ninja>=1.13")
PACKAGES = (
    "cffi>=1.17.1",
    "jinja2>=3.1",
    "numpy>=1.24",
    "tokenizers>=0.20",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "filelock",
)
SERVING = (
    "click>=8.2",
    "rich>=13.7",
    "prompt_toolkit>=3.0.47",
    "starlette>=0.41",
    "anyio>=4",
    "uvicorn>=0.30,<1",
    "pydantic>=2.8",
    "prometheus-client>=0.20",
)
TESTS = ("devices/test_cuda.py", "devices/test_results_on_devices.py")

#: Finds cmake and ninja where pip puts them.
TOOLS = {
    "PATH": os.pathsep.join([str(PYTHON.parent), str(Path(sys.executable).parent), os.environ["PATH"]]),
    "CMAKE_GENERATOR": "Ninja",
}

#: Kinds of devices, as ``--device`` names them, and the options that their backends need. A CPU in a portable build
#: has the layout of a build for GPUs: modules next to the extension.
BACKENDS = {"cuda": ["GGML_CUDA=ON"], "vulkan": ["GGML_VULKAN=ON"], "cpu": ["PYGGML_PORTABLE=ON"]}


@dataclass
class Outcome:
    """Result of a stage."""

    name: str
    until: float  # of the monotonic clock: its limit
    seconds: float = 0.0
    failure: str = ""
    lines: list[str] = field(default_factory=list)  # for the report


class StageError(Exception):
    """Failure of a stage, with a message of one line."""


# --- processes -------------------------------------------------------------------------------------------------------


@dataclass
class Job:
    """A command that runs with its output in a log, as the head of its own process group."""

    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, name: str, *command: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> Job:
        """Start a command.

        Args:
            name: of its log.
            command: the program and its arguments.
            cwd: the folder that it runs in.
            env: environment variables besides this process's own.
        """
        log = FOLDER / f"{name}.log"
        parts = [str(part) for part in command]
        with log.open("wb") as file:
            file.write(f"$ {' '.join(parts)}\n".encode())
            file.flush()
            process = subprocess.Popen(
                parts, cwd=cwd, env={**os.environ, **(env or {})}, stdout=file, stderr=file, start_new_session=True
            )
        return cls(process, log)

    def wait(self, until: float) -> None:
        """Wait for the end.

        Raises:
            StageError: it failed, or still runs at ``until``, a time of the monotonic clock, and was stopped.
        """
        try:
            status = self.process.wait(max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self.stop()
            raise StageError(f"took too long and was stopped; {self.log.relative_to(ROOT)}") from None
        if status != 0:
            sys.stdout.write(self.tail(25))
            raise StageError(f"exit status {status}; {self.log.relative_to(ROOT)}")

    def stop(self) -> None:
        """End it and what it started; a benchmark gets the time to end its stage."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def tail(self, n: int) -> str:
        """The last lines of its log."""
        return "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-n:])


@contextlib.contextmanager
def started(job: Job) -> Iterator[Job]:
    """A job that does not outlive the block."""
    try:
        yield job
    finally:
        if job.process.poll() is None:
            job.stop()


def said(*command: str) -> str:
    """Return the output of a command; "" if it cannot run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


# --- stages ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proof:
    """A run with its options and stages."""

    device: str
    offline: Path | None
    model: str
    rounds: int
    wheel: Path | None
    programs: Path | None
    measured: list[str]

    @property
    def kind(self) -> str:
        """The backend, as in BACKENDS."""
        return re.split(r"[^a-z]", self.device.lower())[0]

    def look(self, outcome: Outcome) -> None:
        """Describe the machine."""
        memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        outcome.lines += [
            f"{len(os.sched_getaffinity(0))} cores, {memory_gb:.0f} GB, {platform.platform()}, "
            f"Python {platform.python_version()}",
            *gpus("name,compute_cap,memory.total,driver_version"),
            *[line for line in said(nvcc(), "--version").splitlines() if "release" in line],
            *said(os.environ.get("CXX", "c++"), "--version").splitlines()[:1],
        ]
        if self.kind == "cuda" and not compute_capabilities():
            raise StageError("nvidia-smi lists no GPU")

    def prepare(self, outcome: Outcome) -> None:
        """Make the environment, and put the engine's sources and upstream's complete tree in place."""
        if not PYTHON.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", FOLDER / "venv"], check=True)
            if self.offline:
                (own,) = (FOLDER / "venv" / "lib").glob("python*/site-packages")
                outer = [path for path in sys.path if path.endswith("-packages")]
                (own / "_outer.pth").write_text("".join(f"{path}\n" for path in outer))
        jobs = [pip(self, "packages", *PACKAGES, *(() if self.wheel else BUILDING))]
        archives = list(self.offline.glob("*.tar.gz")) if self.offline else []
        archive = ["--archive", archives[0]] if archives else []
        sync = [sys.executable, ROOT / "vendor" / "sync.py"]
        if archives or not (self.offline and self.wheel):
            jobs.append(Job.start("engine", *sync, *archive))
        if not (self.programs or UPSTREAM.exists()):
            jobs.append(Job.start("upstream", *sync, "--full", UPSTREAM, *archive))
        finish(jobs, outcome.until)
        try:  # only one stage of the benchmark needs these
            finish([pip(self, "server", *SERVING)], outcome.until)
        except StageError as error:
            outcome.lines.append(f"Without the server's packages: {error}")

    def build(self, outcome: Outcome) -> None:
        """Compile pyggml for this GPU, and upstream's programs on the remaining cores; or install what was built."""
        jobs = [self._build_package()]
        if not self.programs:
            script = ROOT / "benchmarks" / "common" / "llama_cpp_programs.py"
            jobs.append(Job.start("tools", "nice", "-n", "10", PYTHON, script, "--for-devices", env=TOOLS))
        finish(jobs, outcome.until)

    def _build_package(self) -> Job:
        flags = ["--no-deps", "--force-reinstall"]
        if self.wheel:
            return pip(self, "build", *flags, self.wheel)
        # One variant of the CPU's backend: every other one would be compiled for nothing.
        options = [*BACKENDS[self.kind], "GGML_CPU_ALL_VARIANTS=OFF"]
        if self.kind == "cuda":
            # For these processors only, and without PTX.
            targets = ";".join(f"{number}-real" for number in compute_capabilities())
            options.append(f"CMAKE_CUDA_ARCHITECTURES={targets}")
        settings = [f"--config-settings=cmake.define.{option}" for option in options]
        settings.append(f"--config-settings=build-dir={FOLDER / 'objects'}")
        return pip(self, "build", *flags, "--verbose", "--no-build-isolation", *settings, ROOT)

    def test(self, outcome: Outcome) -> None:
        """Run the marked tests in an empty folder, so that the package is the one that was installed."""
        junit, empty = FOLDER / "tests.xml", FOLDER / "empty"
        empty.mkdir(exist_ok=True)
        junit.unlink(missing_ok=True)
        # Other plugins of a shared environment are not ours to judge.
        plugins = ["-p", "pytest_timeout", "-p", "pyggml.pytest_plugin", "-p", "no:cacheprovider"]
        tests = [ROOT / "tests" / name for name in TESTS]
        command = [PYTHON, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, *plugins, "-m", "gpu"]
        job = Job.start(
            "tests",
            *command,
            f"--junitxml={junit}",
            "--durations=15",
            *tests,
            cwd=empty,
            env={
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYGGML_TEST_DEVICE": self.device,
            },
        )
        try:
            with started(job):
                job.wait(outcome.until)
        finally:
            if junit.exists():
                outcome.lines += judged(junit)

    def bench(self, outcome: Outcome) -> None:
        """Measure against upstream's programs."""
        options: list[object] = ["--device", self.device, "--model", self.model, "--rounds", self.rounds]
        options += ["--seconds", max(outcome.until - time.monotonic() - 10, 10)]
        if self.kind != "cuda":
            options.append("--short")  # this is about the walk
        if self.programs:
            options += ["--programs", self.programs]
        if self.measured:
            options += ["--only", *self.measured]
        report = FOLDER / "bench" / "report.md"
        report.unlink(missing_ok=True)
        # Not in the checkout, whose package need not be the one that is installed.
        job = Job.start("bench", PYTHON, "-u", ROOT / "benchmarks" / "gpu.py", *options, cwd=FOLDER)
        try:
            with started(job):
                job.wait(outcome.until)
        finally:
            if report.exists():
                outcome.lines += [
                    f"#{line}" if line.startswith("#") else line for line in report.read_text().splitlines()
                ]


#: In their order: name, what it does, its limit in seconds.
STAGES: tuple[tuple[str, Callable[[Proof, Outcome], None], int], ...] = (
    ("look", Proof.look, 30),
    ("prepare", Proof.prepare, 90),
    ("build", Proof.build, 330),
    ("tests", Proof.test, 200),
    ("bench", Proof.bench, 480),
)


# --- what they share -------------------------------------------------------------------------------------------------


def pip(proof: Proof, name: str, *arguments: object) -> Job:
    """Install into the environment. Packages that it can see, its own or this Python's, stay as they are."""
    index = ["--no-index", "--find-links", proof.offline] if proof.offline else []
    command = [sys.executable, "-m", "pip", "--python", PYTHON, "--disable-pip-version-check", "install"]
    return Job.start(name, *command, *index, *arguments, env=TOOLS)


def finish(jobs: list[Job], until: float) -> None:
    """Wait for all; the first failure stops the rest."""
    with contextlib.ExitStack() as stack:
        for job in jobs:
            stack.enter_context(started(job))
        for job in jobs:
            job.wait(until)


def compute_capabilities() -> list[str]:
    """Return the compute capabilities of the GPUs, as CMake writes them: 9.0 is "90"."""
    return sorted({line.strip().replace(".", "") for line in gpus("compute_cap")})


def gpus(fields: str) -> list[str]:
    """Return nvidia-smi's output for each GPU; nothing without it."""
    return said("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader").splitlines()


def nvcc() -> str:
    return shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def judged(junit: Path) -> list[str]:
    """The counts of a run of tests, and the names of what failed or was skipped, with the reasons."""
    cases = list(ET.parse(junit).getroot().iter("testcase"))
    lines = [f"{len(cases)} tests"]
    for what in ("failure", "error", "skipped"):
        found = [(case.get("name", ""), case.find(what)) for case in cases]
        told = [
            f"{name}: {(node.get('message') or '').splitlines()[0][:150]}" for name, node in found if node is not None
        ]
        lines += [f"{what}: {len(told)}", *(f"- {line}" for line in told)]
    return lines


def report(outcomes: list[Outcome]) -> str:
    """The whole as Markdown."""
    head = ["| stage | seconds | |", "| --- | ---: | --- |"]
    rows = [f"| {each.name} | {each.seconds:.0f} | {each.failure or 'done'} |" for each in outcomes]
    total = f"| | {sum(each.seconds for each in outcomes):.0f} | |"
    parts = [line for each in outcomes for line in ("", f"## {each.name}", "", *each.lines)]
    return "\n".join(["# On this machine", "", *head, *rows, total, *parts, ""])


def main() -> int:
    names = [name for name, _, _ in STAGES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="STAGE", help=", ".join(names))
    parser.add_argument("--device", default="cuda", help="default cuda; cpu walks through all without a GPU")
    parser.add_argument("--offline", type=Path, metavar="FOLDER", help="wheels and the engine's source distribution")
    parser.add_argument("--model", help="of the benchmark; default llama-3.1-8b, smollm2-135m without CUDA")
    parser.add_argument("--rounds", type=int, default=2, help="of the benchmark, default 2")
    parser.add_argument(
        "--measure", nargs="+", default=[], metavar="STAGE", help="stages of the benchmark; default all"
    )
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="a wheel to install, in place of building pyggml")
    parser.add_argument("--programs", type=Path, metavar="FILE", help="upstream's programs, in place of building them")
    parser.add_argument("--limit", type=float, default=1.0, metavar="X", help="multiplies the limits of the stages")
    chosen = parser.parse_args()
    model = chosen.model or ("llama-3.1-8b" if chosen.device.startswith("cuda") else "smollm2-135m")
    folders = [path and path.resolve() for path in (chosen.offline, chosen.wheel, chosen.programs)]
    offline, wheel, programs = folders
    proof = Proof(chosen.device, offline, model, chosen.rounds, wheel, programs, chosen.measure)
    if proof.kind not in BACKENDS:
        parser.error(f"--device {proof.device}: one of {', '.join(BACKENDS)}, with an index or without")
    FOLDER.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # jobs end with it
    outcomes = []
    for name, stage, seconds in STAGES:
        if name in chosen.only:
            begin = time.monotonic()
            outcomes.append(outcome := Outcome(name, begin + seconds * chosen.limit))
            try:
                stage(proof, outcome)
            except (StageError, OSError, subprocess.SubprocessError) as error:
                outcome.failure = str(error)
            outcome.seconds = time.monotonic() - begin
            print(f"{name}: {outcome.failure or 'done'}, {outcome.seconds:.0f} s", flush=True)
            (FOLDER / "report.md").write_text(report(outcomes))
    print((FOLDER / "report.md").read_text())
    return 1 if any(outcome.failure for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
