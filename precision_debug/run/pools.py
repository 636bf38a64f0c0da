"""Which GPU each of several processes gets, so that every card is used before one is shared.

A process sees its cards alone (CUDA_VISIBLE_DEVICES), whichever backend it runs: "cuda:0" is then its own first one.
Actors of a Ray cluster are given theirs by Ray.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from ..errors import UsageError
from ..numbers.cores import count_available_cores, take_share
from ..reasons import say
from ..safety import import_path
from .child import describe_end
from .locked_folder import clear_scratch, make_scratch_folder
from .part_runner import PartRunner, Plain

__all__ = [
    "VISIBLE",
    "Pool",
    "Processes",
    "RayPool",
    "Runner",
    "Worker",
    "WorkerLost",
    "connect_to_ray",
    "list_card_shares",
    "list_cards",
]


VISIBLE = "CUDA_VISIBLE_DEVICES"


def list_cards() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them. Never raises."""
    named = os.environ.get(VISIBLE)
    if named is not None:
        return tuple(one.strip() for one in named.split(",") if one.strip())
    return tuple(map(str, range(_count())))


@functools.cache
def _count() -> int:
    """By the driver, which needs no framework; 0 where there is none."""
    found = ctypes.c_int()
    try:
        library = ctypes.CDLL("libcuda.so.1")
        if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(found)):
            return 0
    except (OSError, AttributeError):
        return 0
    return found.value


def list_card_shares(options: Mapping[str, Any], found: Sequence[str]) -> tuple[str, ...]:
    """Return what CUDA_VISIBLE_DEVICES may be in a process of a command: one entry for each that has cards of its own.

    options: the command's. One that names "cuda:1" beside "cuda:0" takes two cards. Empty where there are too few to
    share them out, or where a backend numbers its cards itself.
    """
    named = [str(value) for key, value in options.items() if key.rpartition(".")[2] == "device"]
    numbers = [int(one.partition(":")[2] or 0) for one in named if one.partition(":")[2].isdigit() or one == "cuda"]
    if any(one.isdigit() and int(one) for one in named):  # Paddle's
        return ()
    each = max(numbers, default=0) + 1
    groups = [found[first : first + each] for first in range(0, len(found) - each + 1, each)]
    return tuple(",".join(group) for group in groups) if len(groups) > 1 else ()


# Who compares the parts of a spread run: child processes of this machine, or actors of a Ray cluster.

_PLACE = re.compile(r"(?:ray://)?([^/]+):([0-9]{1,9})")
_THREADS = "OMP_NUM_THREADS"
"""By which PyTorch, Paddle and oneDNN are told how many threads they may start; what a user says of it stands."""

_PATIENCE = 10.0
"""Seconds that a cluster has to answer."""

_TRIES = 10
"""Times, a fifth of a second apart, that it is looked whether an actor's process is gone."""


class Runner(Protocol):
    """What answers in a worker's process; made with the pool's spec. Everything goes in and out as JSON values."""

    def ask(self, part: Any, /) -> list[Plain]:
        """Events; [] only waits until it is ready."""


class WorkerLost(Exception):
    """A worker ended; what it was asked is to be asked of another one."""


class Worker(Protocol):
    """pid: of its process. Used by one thread."""

    @property
    def pid(self) -> int: ...

    def ask(self, part: Sequence[Any]) -> list[Plain]:
        """See PartRunner. Raises WorkerLost."""

    def close(self) -> None:
        """End it."""


class Pool(Protocol):
    """size: how many workers are to run."""

    @property
    def size(self) -> int: ...

    def start(self) -> Worker:
        """Return a new worker, whose sides open while ``ask([])`` waits. Raises PrecisionDebugError or WorkerLost."""

    def close(self) -> None:
        """End what is left."""


class Processes:
    """A pool of child processes.

    log: gets what they print; each has a folder of its own beside it while it lives. runner: what answers in them (see
    part_worker.start)."""

    def __init__(
        self, spec: Mapping[str, Any], size: int, log: Path, runner: Callable[[Mapping[str, Any]], Runner] = PartRunner
    ) -> None:
        self.size = size
        self._spec, self._log, self._runner = dict(spec), log, runner
        self._started: list[_Child] = []
        known = "run_mode" in self._spec  # a command; of others nobody knows which cards they name
        self._cards = list_card_shares(self._spec.get("options") or {}, list_cards()) if known else ()

    def start(self) -> Worker:
        """See Pool."""
        taken = [child.cards for child in self._started if child.runs]
        own = min(self._cards, key=taken.count, default="")
        child = _Child(self._spec, self._log, self._runner, max(1, count_available_cores() // self.size), own)
        self._started.append(child)
        return child

    def close(self) -> None:
        """End those that nobody has closed."""
        for child in self._started:
            child.close()


class _Child:
    """One child process of a pool.

    cores: its share of them, so that no more threads run than there are. cards: what it sees of CUDA's devices; "":
    whatever this process does."""

    def __init__(
        self, spec: Mapping[str, Any], log: Path, runner: Callable[[Mapping[str, Any]], Runner], cores: int,
        cards: str = "",
    ) -> None:  # fmt: skip
        self.cards = cards
        threads = {} if _THREADS in os.environ else {_THREADS: str(cores)}
        self._folder = Path(tempfile.mkdtemp(prefix="worker-", dir=log.parent))
        place = f"{runner.__module__!r}, {runner.__name__!r}"
        code = f"from precision_debug.run.part_runner import start; start({place})"
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                import_path.make_command(code),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, encoding="utf-8",
                env={**os.environ, **threads, **({VISIBLE: cards} if cards else {})},
            )  # fmt: skip
        self._spec: Mapping[str, Any] | None = {**spec, "folder": str(self._folder), "cores": cores}

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def ask(self, part: Sequence[Any]) -> list[Plain]:
        """The first question is the command itself."""
        asked, self._spec = (part, None) if self._spec is None else (self._spec, None)
        streams: tuple[IO[str] | None, IO[str] | None] = (self._process.stdin, self._process.stdout)
        assert streams[0] is not None
        assert streams[1] is not None
        try:
            streams[0].write(json.dumps(asked) + "\n")
            streams[0].flush()
            line = streams[1].readline()
        except (OSError, ValueError):
            line = ""
        if not line.endswith("\n"):
            self.close()
            raise WorkerLost(f"process {self.pid}: {describe_end(self._process.returncode)}")
        found: list[Plain] = json.loads(line)
        return found

    def close(self) -> None:
        """Its standard input closes, and it ends; what it wrote goes with it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def connect_to_ray(address: str = "", cores: int = 0) -> tuple[Any, bool]:
    """Ray, and whether this call has connected to the cluster, or started one. Raises UsageError."""
    try:
        import ray
    except ImportError as error:
        hint = "pip install 'precision_debug[ray]'"
        raise UsageError(say("no_ray"), where="--engine ray", hint=hint) from error
    if ray.is_initialized():
        return ray, False
    _reach(address)
    more: dict[str, Any] = {"address": address} if address else {"num_cpus": cores or None}
    paths = ":".join(path for path in sys.path if path)
    try:
        ray.init(
            **more, log_to_driver=False, include_dashboard=False, logging_level="ERROR",
            runtime_env={"env_vars": {"PYTHONPATH": paths}},
        )  # fmt: skip
    except Exception as error:
        raise UsageError(f"no Ray cluster: {error}", where="--address", hint="start one, or leave it out") from error
    return ray, True


def _reach(address: str) -> None:
    """Raise UsageError where nobody answers at HOST:PORT, which Ray itself waits minutes for."""
    place = _PLACE.fullmatch(address)
    if place is None:
        return
    try:
        socket.create_connection((place[1].strip("[]"), int(place[2])), _PATIENCE).close()
    except (OSError, OverflowError, UnicodeError) as error:
        what = f"no response from: {getattr(error, 'strerror', '') or error}"
        raise UsageError(what, where=f"--address {address}", hint="start a cluster, or leave it out") from error


class RayPool:
    """Actors of a Ray cluster, which also run elsewhere: models and inputs must lie at the same paths there.

    address: of the cluster; "": one is started here. gpus: of each actor. run: the name of the run's folder, by which
    what actors write in TMPDIR is found where this process is killed. Raises UsageError where Ray is missing.
    """

    def __init__(
        self, spec: Mapping[str, Any], size: int, *, address: str = "", gpus: float = 0.0, run: str = "",
        runner: Callable[[Mapping[str, Any]], Runner] = PartRunner,
    ) -> None:  # fmt: skip
        ray, self._ours = connect_to_ray(address, size)
        self._ray: Any = ray
        self._started: list[_Actor] = []
        resources = ray.cluster_resources()
        fit = resources.get("GPU", 0) / gpus if gpus else resources.get("CPU", 1)
        if fit < 1:
            what = f"{gpus:g} GPUs" if gpus else "a core"
            self.close()
            raise UsageError(f"the cluster has no worker with {what} for us", where="--engine ray", hint="lower --gpus")
        self.size = size or int(fit)
        self._spec, self._runner = dict(spec), (runner.__module__, runner.__name__, run)
        self._actor = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0)(_Remote)

    def start(self) -> Worker:
        """See Pool."""
        actor = _Actor(self._ray, self._actor.remote(self._spec, *self._runner))
        self._started.append(actor)
        return actor

    def close(self) -> None:
        """End those that nobody has closed, and the cluster where it was started here."""
        ended = [actor.end() for actor in self._started]
        if self._ours:
            self._ray.shutdown()
        if not all(ended):  # in the middle of something: what they wrote here goes once their processes are gone
            for _ in range(_TRIES):
                clear_scratch()
                time.sleep(0.2)


class _Remote:
    """What runs in the actor's process."""

    def __init__(self, spec: Mapping[str, Any], module: str, runner: str, run: str) -> None:
        import importlib

        self._open = contextlib.ExitStack()
        take_share(1)  # what Ray gives an actor
        folder, _ = self._open.enter_context(make_scratch_folder(of=run))
        made = getattr(importlib.import_module(module), runner)({**spec, "folder": str(folder)})
        self._runner: Runner = made

    def pid(self) -> int:
        import os

        return os.getpid()

    def ask(self, part: Sequence[Any]) -> str:
        return json.dumps(self._runner.ask(part), allow_nan=False)

    def close(self) -> None:
        """Remove what was written here; the process ends right after."""
        self._open.close()


class _Actor:
    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._closed = False

    @property
    def pid(self) -> int:
        found: int = self._ray.get(self._actor.pid.remote())
        return found

    def ask(self, part: Sequence[Any]) -> list[Plain]:
        try:
            found: list[Plain] = json.loads(self._ray.get(self._actor.ask.remote(part)))
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(f"{type(error).__name__}") from error
        return found

    def close(self) -> None:
        self.end()

    def end(self) -> bool:
        """End it; whether it could still remove what it wrote."""
        if self._closed:
            return True
        self._closed = removed = True
        try:
            self._ray.get(self._actor.close.remote(), timeout=_PATIENCE)
        except Exception:
            removed = False
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)
        return removed
