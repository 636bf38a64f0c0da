"""Whole commands of every verb on a machine that has too little: a full disk, memory, other threads, a signal."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx_models import mlp
from warm import Begun, begin

from .case import ROOT, Lost, patience

__all__ = ["disks_full", "memory_short", "other_threads", "signals_at_random"]

_MOST_SECONDS = 55
_OF_ENGINES = {".ses"}
"""What engines keep in TMPDIR for themselves: the number of ONNX Runtime's installation, 51 bytes (1.32)."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
_RUN = ("--model_file", "m.onnx", "--run_mode", "ort_fp16_sim")
_MODES = ("--run_modes", "ort_fp16_sim,ort_opt")
_VERBS: dict[str, tuple[str, ...]] = {
    "compare": (
        *_RUN,
        "--inputs",
        "in/0.npz",
        "--output",
        "out/r.xlsx",
        "--output",
        "out/r.html",
        "--output",
        "out/r.json",
    ),
    "samples": (*_RUN, "--inputs", "in", "--sample", "0:4", "--output", "out/r.json"),
    "jobs": (*_RUN, "--inputs", "in", "--jobs", "2", "--output", "out/r.json", "--checkpoint", "out/kept"),
    "record": (*_RUN, "--record", "out/rec"),
    "save": (*_RUN, "--save_tensors", "3", "--save_inputs", "out/i.json", "--output", "out/r.json"),
    "search": ("search", *_RUN, "--limit", "50%", "--output", "out/s.json"),
    "sweep": ("sweep", "--model_file", "m.onnx", *_MODES, "--output", "out/w.json", "--output", "out/w.xlsx"),
    "ladder": ("ladder", "--model_file", "m.onnx", "--run_mode", "ort_opt", "--output", "out/l.json"),
    "reduce": ("reduce", *_RUN, "--atol", "0", "--rtol", "0", "--part", "out/red.onnx"),
    "marks": ("marks", "m.onnx", "--output", "out/marks.txt"),
    "inputs": ("inputs", "m.onnx"),
    "check": ("check", "m.onnx"),
}


@functools.cache
def _model() -> bytes:
    return bytes(mlp().SerializeToString())


def _begin(
    folder: Path, verb: str, *, limit: Callable[[], None] | None = None, fork: bool = False
) -> Begun | subprocess.Popen[str]:
    """The verb's command on a model with four samples, with a TMPDIR of its own. fork: of a warm process, if one is
    there: what is attacked is neither how it starts nor the process itself."""
    (folder / "m.onnx").write_bytes(_model())
    known = onnx.load_from_string(_model()).graph.input[0]
    shape = [size.dim_value or 1 for size in known.type.tensor_type.shape.dim]
    rng = np.random.default_rng(0)
    for name in ("tmpdir", "out", "in"):
        (folder / name).mkdir(exist_ok=True)
    for number in range(4):
        np.savez(folder / "in" / f"{number}.npz", **{known.name: rng.normal(size=shape).astype(np.float32)})
    own = os.pathsep.join(map(str, (ROOT, ROOT / "backends")))
    if fork:
        environment = {**os.environ, "PYTHONPATH": own, "TMPDIR": str(folder / "tmpdir")}
        return begin("-m", "precision_debug", *_VERBS[verb], env=environment, cwd=folder)
    return subprocess.Popen(
        [sys.executable, "-m", "precision_debug", *_VERBS[verb]], cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, preexec_fn=limit,  # noqa: PLW1509
        env={**os.environ, "PYTHONPATH": own, "TMPDIR": str(folder / "tmpdir"), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


def _ended(process: Begun | subprocess.Popen[str], verb: str) -> tuple[int, str]:
    """Status and what was said. Raises Lost for anything but our statuses and one clear line."""
    try:
        out, err = process.communicate(timeout=patience(_MOST_SECONDS))
    except subprocess.TimeoutExpired as error:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.communicate()
        raise Lost(f"{verb}: no end") from error
    status = process.returncode
    if status not in (0, 1, 2, 3):
        raise Lost(f"{verb}: status {status}: {err[-300:]}")
    if "Traceback" in err or "internal error" in err:
        raise Lost(f"{verb}: {err[-400:]}")
    last = err.splitlines()[-1] if err else ""
    if status >= 2 and not last.startswith("precision_debug: "):
        raise Lost(f"{verb}: status {status} without a line: {err[-300:]!r}")
    return status, out + err


def _whole(folder: Path, verb: str) -> None:
    """What lies under the name of a report is a whole report; nothing hidden lies beside it; TMPDIR is empty."""
    out = folder / "out"
    for path in out.glob("*.json"):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise Lost(f"{verb}: {path.name} is half a file") from error
    for path in out.glob("*.xlsx"):
        if path.read_bytes()[:2] != b"PK":
            raise Lost(f"{verb}: {path.name} is half a file")
    left = [name for name in os.listdir(folder / "tmpdir") if name not in _OF_ENGINES]
    if left:
        raise Lost(f"{verb}: left {left} in TMPDIR")


def _alive(session: int) -> list[int]:
    """Processes that name the command's folder in their environment, and are not zombies."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                words = (path / "stat").read_text().rpartition(")")[2].split()
                if words[0] != "Z" and int(words[3]) == session:
                    found.append(int(path.name))
    return found


@contextlib.contextmanager
def _small_disk(folder: Path, size: int) -> Iterator[bool]:
    """A file system of some KiB at a folder; False where this machine does not let us."""
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)], capture_output=True, check=False
    )  # fmt: skip
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


_FULL = re.compile(r"disk is full|disk space|no room|[Nn]o space|File too large|cannot (write|be written)")


def disks_full(random_: random.Random, folder: Path) -> None:
    """The disk of the report, or TMPDIR's, ends after some KiB: at another phase each time."""
    verb = random_.choice(sorted(_VERBS))
    size = random_.choice((4, 8, 16, 32, 64, 128, 256))
    place = folder / random_.choice(("out", "tmpdir"))
    with _small_disk(place, size) as full:
        bytes_ = random_.choice((512, 2048, 8192, 32768, 131072))

        def no_larger_file() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))

        status, err = _ended(_begin(folder, verb, limit=None if full else no_larger_file, fork=full), verb)
        if status >= 2 and not _FULL.search(err):
            raise Lost(f"{verb}: {place.name} of {size} KiB: {err[-300:]!r}")
        _whole(folder, verb)


def memory_short(random_: random.Random, folder: Path) -> None:
    """Address space ends somewhere between the interpreter's own and plenty, for the command and its workers alike."""
    verb = random_.choice(sorted(_VERBS))
    most = int(2 ** random_.uniform(29, 32))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    try:
        status, err = _ended(_begin(folder, verb, limit=limit), verb)
    except Lost as lost:
        # below what Python and numpy themselves need, the words are theirs
        if most < _NEEDED:
            return
        raise Lost(f"{most >> 20} MiB: {lost}") from lost
    if status == 2 and "--" in err and "usage" in err:
        raise Lost(f"{most >> 20} MiB: blames the user: {err[-300:]!r}")
    if most >= _NEEDED:
        _whole(folder, verb)


_NEEDED = 1 << 30
"""Bytes of address space with which numpy's threads, onnx and our modules can be imported."""


def signals_at_random(random_: random.Random, folder: Path) -> None:
    """Any signal at any moment of any verb: an end within seconds, one line, no process left, nothing left behind."""
    verb = random_.choice(sorted(_VERBS))
    number = random_.choice(_SIGNALS)
    process = _begin(folder, verb)
    time.sleep(random_.uniform(0.0, 3.0))
    begun = time.monotonic()
    process.send_signal(number)
    if number is signal.SIGKILL:
        process.communicate(timeout=patience(_MOST_SECONDS))
    else:
        try:
            _ended(process, verb)
        except Lost as lost:
            # before our own first line, and after our last, it is the interpreter that a signal ends
            early = process.returncode in (-number, 1) and not {*os.listdir(folder / "tmpdir")} - _OF_ENGINES
            late = process.returncode == -number and any((folder / "out").glob("[a-z]*"))
            if not early and not late:
                raise Lost(f"{signal.Signals(number).name}: {lost}") from lost
    end = time.monotonic() + patience(20)
    while (left := _alive(process.pid)) and time.monotonic() < end:
        time.sleep(0.05)
    if left:
        raise Lost(f"{verb} after {signal.Signals(number).name}: processes {left} live on")
    if time.monotonic() - begun > patience(_MOST_SECONDS):
        raise Lost(f"{verb} after {signal.Signals(number).name}: {time.monotonic() - begun:.0f} s")
    if number is signal.SIGKILL:  # what a killed run leaves, the next one clears
        _ended(_begin(folder, "marks"), "marks")
    _whole(folder, verb)
    if number is not signal.SIGKILL and (hidden := [p.name for p in (folder / "out").glob(".*") if p.is_dir()]):
        raise Lost(f"{verb} after {signal.Signals(number).name}: left {hidden}")


def other_threads(random_: random.Random, folder: Path) -> None:
    """The same report, but for its times, on one core and on all, whatever OMP_NUM_THREADS says."""
    verb = random_.choice(("compare", "samples", "jobs", "search"))
    found = []
    for place, cores in enumerate((1, random_.choice((1, 2, 4)))):
        at = folder / str(place)
        at.mkdir()

        def one_core(cores: int = cores) -> None:
            os.environ["OMP_NUM_THREADS"] = str(cores)
            if cores == 1:
                os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

        status, err = _ended(_begin(at, verb, limit=one_core), verb)
        if status > 1:
            raise Lost(f"{verb}: status {status}: {err[-300:]}")
        text = next((at / "out").glob("[rs].json")).read_text(encoding="utf-8").replace(str(at), "")
        found.append(_numbers(json.loads(text)))
    if found[0] != found[1]:
        raise Lost(f"{verb}: another report with other threads: {_first_difference(*found)}")


_OF_THE_RUN = re.compile(
    r"second|started|time|duration|date|host|machine|path|file|folder|command|threads|cores|bytes|memory|pid"
)


def _numbers(value: Any, key: str = "") -> Any:
    """A report's JSON without what a run's own place and time decide."""
    if isinstance(value, dict):
        return {k: _numbers(v, k) for k, v in value.items() if not _OF_THE_RUN.search(k)}
    if isinstance(value, list):
        return [_numbers(one, key) for one in value]
    return value


def _first_difference(one: Any, other: Any, at: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next((_first_difference(one[k], other[k], f"{at}.{k}") for k in one if one[k] != other[k]), "")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((_first_difference(a, b, f"{at}[{n}]") for n, (a, b) in pairs if a != b), "")
    return f"{at}: {one!r:.100} and {other!r:.100}"
