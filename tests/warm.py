"""Commands, and the children that they run engines in, forked from a process that has imported everything.

Nearly all that a short command costs is importing numpy, onnx and the engine, twice: in itself and in its child.
Hundreds of tests run commands. Here both are forks of a process of its own that has imported them and done nothing
else: no thread runs in it, and no test's state is in it. What a test says of the process itself (how it starts, what it
imports, which signals end it) needs a fresh one, of ``sys.executable``. Used by ``command``, by the engines that tests
start, and by the ``python`` that documents type.

python tests/warm.py SOCKET HANDLE MODULES… serves until its standard input closes. A request is one connection: a
length, a literal, and the descriptors that the fork shall have; the answer is its pid, then its exit status.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import gc
import importlib
import importlib.util
import logging
import os
import pkgutil
import re
import runpy
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NoReturn

__all__ = [
    "ENGINES", "Begun", "EveryWarm", "Forked", "Warm", "begin", "command", "fixed", "import_all", "run_python",
    "run_together", "serving", "shared", "write_python",
]  # fmt: skip

ROOT = Path(__file__).resolve().parent.parent
# What a library may have read when it was imported must be as it was then; these are read when a command runs.
_READ_LATE = (
    "PRECISION_DEBUG_", "PYTEST_", "LC_", "LANG", "TMPDIR", "PYTHONPATH", "COLUMNS", "PWD", "OLDPWD", "PATH",
    "SHLVL", "_", "RANK", "WORLD_SIZE", "MASTER_", "GLOO_", "GITHUB_", "PYTHONIOENCODING",
)  # fmt: skip
_IMPORTS = (
    "numpy", "numpy.random", "ml_dtypes", "msgspec", "onnx", "onnx.helper", "onnx.numpy_helper", "onnxruntime",
    "numpy.ma", "rich.console", "rich.table", "xlsxwriter", "precision_debug_onnxruntime.session",
    "precision_debug_onnxruntime.make", "precision_debug_onnxruntime.make.saving",
    "precision_debug_onnxruntime.make.simulate", "precision_debug_onnxruntime.on_device",
)  # fmt: skip
# of our own modules, of which a command imports fifty late and its engine a hundred: pytest's, and what needs a card
_LEFT_OUT = (
    "precision_debug.testing", "precision_debug.numbers.cuda", "precision_debug.products.device",
    "precision_debug.numbers._",
)  # fmt: skip
ENGINES = {
    "onnxruntime": (),
    "torch": ("torch", "torch._dynamo", "precision_debug_torch.session", "precision_debug_torch.make"),
    "transformers": (
        "torch", "torch._dynamo", "precision_debug_torch.session", "precision_debug_torch.make", "transformers",
        "transformers.models.auto.modeling_auto", "transformers.models.llama.modeling_llama",
    ),
    "paddle": (
        "precision_debug_paddle.engine.framework:import_paddle", "precision_debug_paddle.session",
        "precision_debug_paddle.make",
    ),
    "openvino": (
        "openvino", "precision_debug_openvino.session", "precision_debug_openvino.make",
        "precision_debug_openvino.engine.quantise:import_nncf",
    ),
}  # fmt: skip
"""What is imported besides in the warm process of an engine; what follows a colon is called."""
# What in a command or in a child's job says who will run; the first that is installed. A wrong guess costs time alone.
_NAMED = (
    ("torch", re.compile(r"torch_|\.pt2?\b|\.pth\b")),
    ("paddle", re.compile(r"onednn_|cpu_fp32|cpu_opt|dygraph_|\.pdmodel|paddle")),
    ("openvino", re.compile(r"\bov_")),
)


class Forked:
    """A child, as ``subprocess.Popen`` has it: pid, stdin, poll, wait and returncode."""

    def __init__(self, stdin: IO[bytes] | None, told: socket.socket) -> None:
        self.stdin = stdin
        self.returncode: int | None = None
        self._told = told
        (self.pid,) = struct.unpack("i", told.recv(4))

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises subprocess.TimeoutExpired."""
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("a forked child", timeout or 0.0)
        return status

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            told = self._told.recv(4)
            self.returncode = struct.unpack("i", told)[0] if told else -signal.SIGKILL
            self._told.close()
        return self.returncode


class Begun(Forked):
    """A whole command that runs on, as ``subprocess.Popen`` has it: what it says is read at its end."""

    def __init__(self, told: socket.socket, said: tuple[IO[bytes], IO[bytes]]) -> None:
        super().__init__(None, told)
        self._said = said

    def send_signal(self, number: int) -> None:
        """Nothing where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it wrote to both, once it has ended. Raises subprocess.TimeoutExpired."""
        self.wait(timeout)
        texts = []
        for file in self._said:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace").replace("\r\n", "\n"))
            file.close()
        return texts[0], texts[1]


class Warm:
    """The process that is forked, and what asks it to.

    alive: a named pipe that whoever uses the process holds open for writing; it ends with the last of them. Without,
    it ends with whoever started it."""

    def __init__(
        self, path: str, environment: Mapping[str, str], fresh: Callable[..., Any], modules: Sequence[str] = (), *,
        alive: str = "",
    ) -> None:  # fmt: skip
        self.path, self._environment, self._fresh, self._modules = path, environment, fresh, modules
        self._alive = alive
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, code: str, *arguments: str, said: IO[bytes] | None, handles: Sequence[int] = ()) -> Any:
        """What ``precision_debug.run.child.start`` does."""
        if not self.serves(os.environ):
            return self._fresh(code, *arguments, said=said, handles=handles)
        from precision_debug.safety import import_path

        reading, writing = os.pipe()
        out = said.fileno() if said is not None else 1
        words = [*import_path.make_command(code), *arguments]
        try:
            told = self.ask(
                {"code": code, "argv": ["-c", *arguments], "orig_argv": words, "session": True, "cleaned": True,
                 "path": [os.path.abspath(path) for path in import_path.list_entries()], "handles": list(handles)},
                [reading, out, out if said is not None else 2, *handles], os.environ,
            )  # fmt: skip
        finally:
            os.close(reading)
        return Forked(os.fdopen(writing, "wb", buffering=0), told)

    def run_code(self, code: str) -> subprocess.CompletedProcess[str]:
        """What ``precision_debug.safety.own_process.run_code`` does."""
        from precision_debug.safety import import_path

        words = import_path.make_command(code)
        if not self.serves(os.environ):
            return subprocess.run(words, capture_output=True, text=True, check=False, timeout=600, errors="replace")
        said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        job = {"code": code, "argv": ["-c"], "orig_argv": words,
               "path": [os.path.abspath(path) for path in import_path.list_entries()]}  # fmt: skip
        with open(os.devnull, "rb") as nothing:
            fds = [nothing.fileno(), *(file.fileno() for file in said)]
            process = Begun(self.ask(job, fds, os.environ), said)
        out, err = process.communicate(600)
        assert process.returncode is not None
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def open(self) -> None:
        """Start the process, where nothing has."""
        if self._process is None and not os.path.exists(self.path):
            own = f"{self.path}.{os.getpid()}"
            with socket.socket(socket.AF_UNIX) as listening, contextlib.suppress(FileExistsError):
                listening.bind(own)
                listening.listen(64)  # here, so that whoever asks early waits
                try:
                    os.link(own, self.path)  # of workers that ask at once, one starts it
                finally:
                    os.unlink(own)
                with open(self._alive or os.devnull, "rb") as users:
                    self._process = subprocess.Popen(
                        [sys.executable, __file__, self.path, str(listening.fileno()), *self._modules],
                        stdin=users if self._alive else subprocess.PIPE, cwd="/", start_new_session=True,
                        pass_fds=[listening.fileno()], env=dict(self._environment),
                    )  # fmt: skip

    def close(self) -> None:
        """End the process, or wait until the last worker that it serves has ended."""
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=3600 if self._alive else 20)
            self._process.kill()
            self._process.wait()

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Whether its imports have read nothing that is another here."""
        return fixed(environment) == fixed(self._environment)

    def ask(
        self, job: Mapping[str, Any], fds: Sequence[int], environment: Mapping[str, str], folder: str = ""
    ) -> socket.socket:
        self.open()
        told = socket.socket(socket.AF_UNIX)
        told.connect(self.path)
        job = {**job, "environment": dict(environment), "folder": folder or os.getcwd(), "parent": os.getpid()}
        text = repr(job).encode("utf-8", "surrogateescape")
        socket.send_fds(told, [struct.pack("i", len(text))], fds)
        told.sendall(text)
        return told


class EveryWarm:
    """One warm process an engine: whoever is asked is chosen by what is asked."""

    def __init__(self, engines: Mapping[str, Warm]) -> None:
        self._engines = engines

    def __getitem__(self, engine: str) -> Warm:
        return self._engines[engine]

    def chosen(self, words: str) -> Warm:
        """The one that has imported what these words of a command, or this job of a child, name."""
        for engine, named in _NAMED:
            if engine in self._engines and named.search(words) and importlib.util.find_spec(engine) is not None:
                return self._engines[engine]
        return self._engines["onnxruntime"]

    def start(self, code: str, *arguments: str, said: IO[bytes] | None, handles: Sequence[int] = ()) -> Any:
        """What ``precision_debug.run.child.start`` does: its first argument is the folder that holds its job."""
        job = Path(arguments[0], "job.json") if arguments else Path()
        words = job.read_text(encoding="utf-8", errors="replace") if job.is_file() else ""
        return self.chosen(words).start(code, *arguments, said=said, handles=handles)

    def run_code(self, code: str) -> subprocess.CompletedProcess[str]:
        """What ``precision_debug.safety.own_process.run_code`` does: a backend's code names itself first."""
        return self.chosen(code.partition(";")[0]).run_code(code)

    def close(self) -> None:
        """End them; their children go on."""
        for one in self._engines.values():
            one.close()


class _Served(EveryWarm):
    """As a fork sees them: what nobody has started is not started, since it would end with this fork."""

    def __init__(self, engines: Mapping[str, Warm], own: Warm) -> None:
        super().__init__({**engines, "torch": own} if own is engines["transformers"] else engines)
        self._own = own

    def chosen(self, words: str) -> Warm:
        found = super().chosen(words)
        return found if os.path.exists(found.path) else self._own


def fixed(environment: Mapping[str, str]) -> dict[str, str]:
    """What must be as it was when the libraries of a warm process were imported."""
    return {name: value for name, value in environment.items() if not name.startswith(_READ_LATE)}


@contextlib.contextmanager
def shared() -> Iterator[str]:
    """A folder whose processes serve several workers: see ``serving``."""
    with tempfile.TemporaryDirectory(prefix="warm-", ignore_cleanup_errors=True) as folder:
        os.mkfifo(f"{folder}/alive")
        yield folder


@contextlib.contextmanager
def serving(folder: str = "") -> Iterator[EveryWarm]:
    """What forks commands; each starts when it is first asked. They end with the context, their children go on.

    folder: shared with other workers, which use the same processes where their environments are the same."""
    global here
    from precision_debug.run import child

    environment = dict(os.environ)
    with contextlib.ExitStack() as ends:
        alive = f"{folder}/alive" if folder else ""
        if folder:
            held = _Held(os.open(alive, os.O_RDWR))
            read = repr(sorted(fixed(environment).items())).encode("utf-8", "surrogateescape")
            own = f"{folder}/{zlib.crc32(read):x}"
            os.makedirs(own, exist_ok=True)
        else:
            own = ends.enter_context(tempfile.TemporaryDirectory(prefix="warm-"))
        here = every = EveryWarm({name: Warm(f"{own}/{name}", environment, child.start, modules, alive=alive)
                                  for name, modules in ENGINES.items()})  # fmt: skip
        yield every
        here = None
        if folder:
            held.close()
        every.close()


class _Held:
    """A descriptor that no fork of this process holds."""

    def __init__(self, number: int) -> None:
        self._number = number
        os.register_at_fork(after_in_child=self.close)

    def close(self) -> None:
        if self._number >= 0:
            os.close(self._number)
        self._number = -1


here: EveryWarm | Warm | None = None
"""What ``command`` asks; a test of another engine sets it."""


def command(
    *words: str, timeout: float = 300, env: Mapping[str, str] | None = None, cwd: str | Path = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m precision_debug WORDS`` and return what it printed, as ``subprocess.run`` does."""
    return run_python("-m", "precision_debug", *words, timeout=timeout, env=env, cwd=cwd)


def run_python(
    *words: str, timeout: float = 300, env: Mapping[str, str] | None = None, cwd: str | Path = "", engine: str = "",
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run ``python SCRIPT WORDS`` or ``python -m MODULE WORDS`` so. timeout: seconds on an idle machine. engine: the
    one that a script imports, where its words do not name it."""
    from attack.case import patience

    whole, process = [sys.executable, *words], begin(*words, env=env, cwd=cwd, engine=engine)
    try:
        said, told = process.communicate(patience(timeout))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode is not None
    return subprocess.CompletedProcess(whole, process.returncode, said, told)


def begin(
    *words: str, env: Mapping[str, str] | None = None, cwd: str | Path = "", engine: str = "", fresh: bool = False
) -> Begun | subprocess.Popen[str]:
    """Begin such a Python. fresh: in a process of its own."""
    environment = os.environ if env is None else env
    whole = [sys.executable, *words]
    warm = here
    if isinstance(here, EveryWarm):
        warm = here[engine] if engine else here.chosen(" ".join(words))
    if fresh or warm is None or not warm.serves(environment):
        return subprocess.Popen(
            whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=cwd or None
        )
    said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
    with open(os.devnull, "rb") as nothing:
        fds = [nothing.fileno(), *(file.fileno() for file in said)]
        return Begun(warm.ask({"words": whole}, fds, environment, str(cwd)), said)


def run_together(
    *commands: Sequence[str], env: Mapping[str, str], engine: str, timeout: float = 300, ranks: bool = False
) -> None:
    """Run Python scripts at once, each as ``run_python`` does. ranks: each is told its number, as RANK. Raises
    AssertionError with what all said where one failed."""
    with ThreadPoolExecutor(len(commands)) as pool:
        waiting = [
            pool.submit(run_python, *words, timeout=timeout, engine=engine,
                        env={**env, "RANK": str(n)} if ranks else env)
            for n, words in enumerate(commands)
        ]
        done = [one.result() for one in waiting]
    assert not any(one.returncode for one in done), "\n".join(one.stdout + one.stderr for one in done)


def write_python(folder: Path, warm: Warm) -> dict[str, str]:
    """Write a ``python`` that has commands of ours and scripts run in a fork, and does everything else itself.

    Returns the environment that it needs.
    """
    client = shlex.quote(str(ROOT / "tests" / "warm_client.py"))
    for name in ("python", "python3"):
        script = folder / name
        script.write_text(_PYTHON.format(python=shlex.quote(sys.executable), client=client), encoding="utf-8")
        script.chmod(0o755)
    if not warm.serves(os.environ):
        return {}
    warm.open()
    return {"PYTEST_WARM": warm.path}


# the client's own start must be cheap: no site, and nothing imported that is not built in
_PYTHON = """#!/bin/sh
if [ -n "$PYTEST_WARM" ] && {{ [ "$1 $2" = "-m precision_debug" ] || [ -f "$1" ]; }}; then
    exec {python} -ISE {client} {python} "$@"
fi
exec {python} "$@"
"""


def serve(path: str, handle: int, modules: Sequence[str]) -> None:
    """Import everything, then fork for each request until standard input closes."""
    sys.path[:] = [path for path in sys.path if path != str(ROOT / "tests")]
    sys.path[:0] = [str(ROOT), str(ROOT / "backends")]
    environment = dict(os.environ)
    import_all((*_IMPORTS, *_own_modules(), *modules))
    logging.root.handlers.clear()  # what an import has put there would print our own notes beside the error
    logging.root.setLevel(logging.WARNING)
    from precision_debug.run import child, open_pair
    from precision_debug.safety import own_process

    # the engines that the tests' process has started; another one would end with the command that started it
    there = {name: Warm(str(Path(path).with_name(name)), environment, child.start) for name in ENGINES}
    own = there[Path(path).name]
    served = _Served(there, own)
    child.start, own_process.run_code = served.start, served.run_code
    gc.collect()
    gc.freeze()
    open_pair._at_rest = True  # to ask the collector walks through all of that, in each fork
    _Forks(socket.socket(fileno=handle)).serve()


def import_all(names: Iterable[str]) -> None:
    """Import what there is of these; what follows a colon is called."""
    for name in names:
        with contextlib.suppress(ImportError):
            module, _, function = name.partition(":")
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()


def _own_modules() -> Iterator[str]:
    """Every module of the core and its products, and of each backend what tells of it; none imports a framework."""
    import precision_debug

    for module in pkgutil.walk_packages(precision_debug.__path__, "precision_debug.", onerror=lambda name: None):
        if not module.name.startswith(_LEFT_OUT) and not module.name.endswith("__main__"):
            yield module.name
    yield from (module.name for module in pkgutil.iter_modules([str(ROOT / "backends")]))


class _Forks:
    """Those that run, each with the connection that is told how it ends.

    Each is one fork: another that waits for it would copy the tables of all that is imported once more."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening, self._told = listening, dict[int, socket.socket]()
        self._woken, self._wakes = os.pipe()

    def serve(self) -> None:
        """Fork for each request until standard input closes, then wait for those that run."""
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # its number in the pipe ends the waiting
        while 0 not in (ready := select.select([self._listening, self._woken, 0], [], [])[0]):
            if self._woken in ready:
                os.read(self._woken, 512)
                self._reap(os.WNOHANG)
            if self._listening in ready:
                self._fork(self._listening.accept()[0])
        self._reap(0)

    def _reap(self, how: int) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, how))[0]:
                if (told := self._told.pop(ended[0], None)) is not None:
                    _tell(told, os.waitstatus_to_exitcode(ended[1]))
                    told.close()

    def _fork(self, asked: socket.socket) -> None:
        head, fds, _, _ = socket.recv_fds(asked, 4, 64)
        size, text = struct.unpack("i", head)[0] if head else 0, b""
        while len(text) < size and (more := asked.recv(size - len(text))):
            text += more
        if head and len(text) == size:
            job = ast.literal_eval(text.decode("utf-8", "surrogateescape"))
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in (self._woken, self._wakes):
                    os.close(end)
                for one in (self._listening, *self._told.values()):
                    one.close()
                asked.close()
                _become(job, fds)
            _tell(asked, child)
            self._told[child] = asked.dup()
        asked.close()
        for fd in fds:
            os.close(fd)


def _tell(asked: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        asked.sendall(struct.pack("i", number))


def _become(job: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Be what a fresh interpreter would be after its imports."""
    if job.get("session"):
        os.setsid()
        os.getppid = lambda: job["parent"]  # by which an engine's child knows the command that it belongs to
    # first out of the way of the numbers that they shall have
    wanted = [(fcntl.fcntl(fd, fcntl.F_DUPFD, 200), to) for fd, to in
              zip(fds, (0, 1, 2, *job.get("handles", ())), strict=True)]  # fmt: skip
    for fd in fds:
        os.close(fd)
    for fd, number in wanted:
        os.dup2(fd, number, inheritable=True)
        os.close(fd)
    coding, _, how = job["environment"].get("PYTHONIOENCODING", "").partition(":")
    how = how or "strict"
    for number, name, errors in ((0, "stdin", how), (1, "stdout", how), (2, "stderr", "backslashreplace")):
        stream = open(  # noqa: SIM115
            number, "w" if number else "r", encoding=coding or "utf-8", errors=errors, closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    tempfile.tempdir = None
    from precision_debug.safety import import_path

    status: Any = 1
    try:
        if "code" in job:
            import_path._cleaned = True
            sys.path[:] = job["path"]
            sys.argv[:], sys.orig_argv[:] = job["argv"], job["orig_argv"]
            exec(job["code"], {"__name__": "__main__", "__builtins__": __builtins__})
            status = 0
        else:
            _run(job["words"])
            status = 0
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
    if isinstance(status, str):
        print(status, file=sys.stderr)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


def _run(words: Sequence[str]) -> None:
    """``python -m MODULE WORDS`` or ``python SCRIPT WORDS``; of the first no folder is put in front of the path."""
    from precision_debug.safety import import_path

    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    own = [path for path in sys.path if path not in (str(ROOT), str(ROOT / "backends"))]
    sys.orig_argv[:] = words
    if words[1] == "-m":
        import_path._cleaned = True
        sys.path[:] = [*named, *(path for path in own if path not in named)]
        sys.argv[:] = words[2:]
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    else:
        folder = os.path.dirname(os.path.realpath(words[1]))
        sys.path[:] = [folder, *named, *(path for path in own if path not in named)]
        sys.argv[:] = words[1:]
        sys.modules["__main__"].__dict__.pop("__file__", None)
        runpy.run_path(words[1], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
