"""Everything that must hold before a commit counts. Run it with .ci/run; it needs a Python and a package index.

The README's two commands as they are typed there, each in a fresh clone that holds nothing else; lint and types; in
another environment with the frameworks, what did not pass on the bare machine; vLLM's tests, whose engine has an
environment of its own, where that can be made; last, that no promised test was left out in all of them. Every step
runs whatever failed before. At the end stands one table, and below it how each failure begins; what passed whole is
remembered in ``ci-passed`` of the git folder that the checkout shares with its worktrees.

Meant for two cores: a step says how many it keeps busy, and starts when they are free and what it looks at has ended.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from readme_blocks import blocks_of  # noqa: E402

CORES = 2
LIMIT_S = 3600  # of one step on idle cores: what hangs is ended, and the others still run
# Frameworks whose backends have tests here; without them those tests skip, and say so. The versions are CPU wheels.
FRAMEWORKS = (
    "torch==2.13.0 transformers==4.57.6 paddlepaddle==3.3.1 onnxscript==0.7.2 openvino==2026.4.1 "
    "tensorrt-rtx-cu13-libs==1.7.1.116 tensorrt-rtx-cu13-bindings==1.7.1.116 onnxruntime-qnn==2.7.0 "
    "ai-edge-litert==2.3.0 xllamacpp==2026.10.11549 gguf==0.19.0 nncf==3.4.0 scikit-learn==1.9.1 "
    "torchao==0.18.0 accelerate==1.15.0"
)
# One more than there are cores: with the frameworks, tests wait for what they have started for a sixth of their time.
# Forks of one process, since each of xdist's workers would import every framework and collect every test.
SPREAD = f"--forks {CORES + 1}"
# A status of 0 where a processor saturates 8-bit sums.
SATURATES = "from precision_debug_onnxruntime.engine import remedies; exit(not remedies.adds_in_16_bits())"


@dataclass(frozen=True, kw_only=True)
class Step:
    """Lines of bash, run in a clone of their own or in one that an earlier step left."""

    name: str
    script: str
    clone: str
    cores: int = 1
    after: Sequence[str] = ()
    outcomes: Path | None = None  # where its pytest writes what became of each test


@dataclass(kw_only=True)
class Outcome:
    """What became of a step."""

    step: Step
    status: int = -1
    seconds: float = 0.0
    cpu: float = 0.0
    log: str = ""
    tests: list[list[str]] = field(default_factory=list)  # outcome, id and, of a failure, how it begins

    def count(self, *outcomes: str) -> str:
        return str(sum(line[0] in outcomes for line in self.tests)) if self.tests else "-"

    def failures(self) -> Iterator[str]:
        failed = [line for line in self.tests if line[0] == "failed"]
        for _, name, *begins in failed[:40]:
            yield "\n      ".join([name, *(part for text in begins for part in text.split(" | "))])
        if len(failed) > 40:
            yield f"and {len(failed) - 40} more, in the log above"
        if not failed and self.status:
            yield "\n      ".join([f"status {self.status}; its last lines:", *self.log.rstrip().splitlines()[-15:]])


def readme(number: int) -> str:
    """A command of the README, as it is typed there."""
    return blocks_of(ROOT / "README.md")[number - 1].text


def steps(work: Path, tests: Sequence[str]) -> list[Step]:
    """All of them. work: an empty folder; tests: what pytest runs, everything where there are none."""
    only = " ".join(tests)
    python = shlex.quote(str(work / "third" / ".venv" / "bin" / "python"))  # with frameworks
    made = f'{sys.executable} "{work}/third/.venv" "{work}/compiled" {FRAMEWORKS}'
    gives_way = f"nice -n 5 {python}"  # to the tests that run beside it
    bare, full, slow, vllm = (work / f"{name}.txt" for name in ("bare", "frameworks", "slow", "vllm"))
    # What passed bare is not run again; without the bare run's list, everything is.
    left = f'$([ -f "{bare}" ] && echo "--passed-in={bare}")'
    frameworks, second = "environment with frameworks", "README's second command, bare"
    return [
        Step(name=frameworks, clone="third", cores=0, script=f"""
            .ci/frameworks {made}
            .venv/bin/python -m pip install -q --no-deps -e .
            .venv/bin/python -m pip check
        """),
        # it waits for packages longer than it computes, and nothing waits for it
        Step(name="README's first command", clone="first", cores=0, script=f"""
            status=0
            (
            {readme(1)}
            ) || status=$?
            # 1 on a processor whose 8-bit sums saturate, as the README says
            [ $status = 0 ] || {{ [ $status = 1 ] && .venv/bin/python -c {shlex.quote(SATURATES)}; }}
            # the same environment is enough for compare()
            .venv/bin/python examples/api/compare_modes.py >/dev/null
        """),
        # what is in PYTEST_ADDOPTS adds to the command as it is typed
        Step(name=second, clone="second", cores=2, outcomes=bare, script=f"""
            PYTEST_ADDOPTS="--durations=25 {only}" OUTCOMES="{bare}" bash -euo pipefail -c {shlex.quote(readme(2))}
        """),
        Step(name="packages agree", clone="second", cores=0, after=[second], script=".venv/bin/python -m pip check"),
        # Tests wait for children, files and signals for a tenth of their time: what follows fills that, and gives way.
        Step(name="ruff", clone="third", cores=0, after=[frameworks], script=f"{gives_way} -m ruff check ."),
        # it tells by hashes of files what it has read before, wherever the checkout lies, and follows no framework
        Step(name="mypy", clone="third", cores=0, after=[frameworks], script=f"""
            {gives_way} -m mypy --cache-dir "{_shared_folder()}/ci-mypy"
        """),
        Step(name="slow tests", clone="third", cores=0, after=[frameworks], outcomes=slow, script=f"""
            {gives_way} -m pytest -q -m slow tests/test_declared_metrics.py --outcomes="{slow}"
        """),
        Step(name="tests with vLLM", clone="third", cores=0, after=[frameworks], outcomes=vllm, script=f"""
            PRECISION_DEBUG_VLLM_PYTHON="$(.ci/vllm {sys.executable})"
            export PRECISION_DEBUG_VLLM_PYTHON
            [ -z "$PRECISION_DEBUG_VLLM_PYTHON" ] || {gives_way} -m pytest -q --durations=25 \\
                tests/test_vllm.py tests/test_vllm_contract.py --outcomes="{vllm}"
        """),
        # and what README's command leaves out as long (tests/long.txt);
        # in the second clone all modules are compiled, and the assertions of most tests rewritten
        Step(name="tests with frameworks", clone="second", cores=2, outcomes=full,
             after=[frameworks, second], script=f"""
            {python} -m pytest -q -m "not slow" {SPREAD} --durations=25 {left} --outcomes="{full}" {only}
            .ci/frameworks --keep {made}
        """),
        Step(name="promised tests", clone="", after=["slow tests", "tests with frameworks"], script=f"""
            {sys.executable} tests/promised.py "{bare}" "{full}" "{slow}"
        """),
    ]  # fmt: skip


def _shared_folder() -> str:
    """git's, which all worktrees share."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--path-format=absolute", "--git-common-dir"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def run_all(todo: Sequence[Step], work: Path, commit: str) -> list[Outcome]:
    """Run every step, as many at once as the cores allow; their logs are printed whole, one after the other."""
    waiting, running, done = list(todo), dict[str, "_Running"](), list[Outcome]()
    try:
        while waiting or running:
            for step in list(waiting):
                ended = {outcome.step.name for outcome in done}
                busy = sum(one.step.cores for one in running.values())
                ready = set(step.after) <= ended
                # what was listed first is not overtaken by what needs fewer cores
                if ready and busy + step.cores <= CORES:
                    waiting.remove(step)
                    running[step.name] = _Running(step, work, commit)
                elif ready:
                    break
            time.sleep(0.2)
            for name, one in list(running.items()):
                if (outcome := one.ended()) is not None:
                    del running[name]
                    done.append(outcome)
                    print(f"\n== {name} ({outcome.seconds:.0f} s, status {outcome.status})\n{outcome.log}", flush=True)
    finally:
        for one in running.values():
            one.kill()
    return sorted(done, key=lambda outcome: todo.index(outcome.step))


class _Running:
    def __init__(self, step: Step, work: Path, commit: str) -> None:
        self.step, self._work = step, work
        self._log = work / f"{step.name.replace(' ', '_')}.log"
        self._begun = time.monotonic()
        folder = work / step.clone if step.clone else ROOT
        script = "set -euo pipefail\n" + step.script
        if step.clone and not folder.exists():
            script = (
                f"git clone --quiet --no-hardlinks '{ROOT}' '{folder}' && cd '{folder}'\n"
                f"git -c advice.detachedHead=false checkout --quiet {commit}\n{script}"
            )
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", script], cwd=folder if folder.exists() else work, env=_environment(work), stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def ended(self) -> Outcome | None:
        """What became of it, or None while it runs; CPU seconds are its own and those of all that it waited for."""
        pid, status, used = os.wait4(self._process.pid, os.WNOHANG)
        seconds = time.monotonic() - self._begun
        if not pid:
            if seconds > LIMIT_S * max(1.0, os.getloadavg()[0] / CORES):
                self.kill()
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        log = self._log.read_text(encoding="utf-8", errors="replace")
        outcome = Outcome(step=self.step, status=self._process.returncode, seconds=seconds, log=log)
        outcome.cpu = used.ru_utime + used.ru_stime
        if self.step.outcomes is not None and self.step.outcomes.exists():
            lines = self.step.outcomes.read_text(encoding="utf-8").splitlines()
            outcome.tests = [line.split("\t") for line in lines]
        return outcome

    def kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _environment(work: Path) -> dict[str, str]:
    """As of a shell that has nothing of ours in it."""
    own = {"PYTHONPATH", "VIRTUAL_ENV", "PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE"}
    return {name: value for name, value in os.environ.items() if name not in own} | {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # modules are compiled when they are imported; most of an environment's never are (of --no-compile, pip reads
        # "no" as yes)
        "PIP_NO_COMPILE": "no",
        # tests start hundreds of processes, and what a process imports is compiled once; not beside the files
        "PYTHONPYCACHEPREFIX": str(work / "compiled"),
        # OpenMP's threads would spin between two operators, on cores that the other worker needs
        "OMP_WAIT_POLICY": "passive",
    }


def table(outcomes: Sequence[Outcome]) -> str:
    head = ("step", "seconds", "CPU seconds", "passed", "failed", "skipped", "")
    rows = [head, *(
        (one.step.name, f"{one.seconds:.0f}", f"{one.cpu:.0f}", one.count("passed"), one.count("failed"),
         one.count("skipped", "no hardware"), "RED" if one.status else "")
        for one in outcomes
    )]  # fmt: skip
    wide = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join([row[0].ljust(wide[0]), *(cell.rjust(size) for cell, size in zip(row[1:], wide[1:], strict=True))])
        for row in rows
    )


def main(tests: Sequence[str]) -> int:
    """0 where every step passed."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    if subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout:
        print("note: what is not committed is not tested")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ci-", ignore_cleanup_errors=True) as work:
        outcomes = run_all(steps(Path(work), tests), Path(work), commit)
        print(f"\n{table(outcomes)}\n{time.monotonic() - begun:.0f} s in all, commit {commit}")
        red = [one for one in outcomes if one.status]
        for one in red:
            print(f"\n{one.step.name}:", *one.failures(), sep="\n  - ")
        if tests:
            print("\na trial: pytest ran only", *tests)
        elif not red:
            Path(_shared_folder(), "ci-passed").write_text(f"{commit}\n", encoding="utf-8")
        print("\nred" if red else "\ngreen", flush=True)
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
