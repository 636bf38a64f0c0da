"""One attack, and what must hold whatever is attacked."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
import random
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from precision_debug.errors import PrecisionDebugError
from precision_debug.run import supervisor
from precision_debug.run.outcome import Outcome
from precision_debug.safety.untrusted import make_visible

__all__ = [
    "CANARY", "ROOT", "Attack", "Lost", "command", "files_of", "holds", "own_error", "patience", "python", "spoiled",
    "spoiled_text", "whole_command",
]  # fmt: skip

ROOT = Path(__file__).resolve().parent.parent.parent
CANARY = "canary-ran"
"""A file of this name is produced by code that must not run; no case may leave one."""

Attack = Callable[[random.Random, Path], None]
"""Does one attack in an empty folder, which is the current one. Raises Lost, or anything else, where it got through."""


class Lost(Exception):
    """What did not hold."""


@dataclass(frozen=True)
class Said:
    """What a command said."""

    status: int
    out: str
    err: str


def holds(attack: Attack, random_: random.Random, folder: Path, seconds: int = 60) -> str:
    """Run one case in a folder; "" where it held, else why not."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with _limited(math.ceil(patience(seconds))), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attack(random_, folder)
    except Lost as lost:
        return str(lost)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    finally:
        os.chdir(before)
    ran = [str(path.relative_to(folder)) for path in folder.rglob(CANARY)]
    return f"code ran: {ran}" if ran else ""


def patience(seconds: float) -> float:
    """Return how long what ends within that many seconds on an idle machine may take on this one, as busy as it is."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Lost(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def own_error(call: Callable[[], Any]) -> str:
    """Call; an error that is ours is fine and its line is returned, "" where there is none. Others pass through."""
    try:
        call()
    except PrecisionDebugError as error:
        text = str(error)
        if not text or "\n" in text or make_visible(text) != text:
            raise Lost(f"the error is not a visible line: {text!r}") from error
        return text
    return ""


def command(*arguments: str) -> Said:
    """The command line in this process, up to where it would start a run. Its oracle: see ``_judged``."""
    from precision_debug.cli import main  # here, or they would keep the mock for good
    from precision_debug.products.search import search_verb as search  # here, or they would keep the mock for good
    from precision_debug.products.search import sweep_verb as sweep
    from precision_debug.products.tools import ladder  # here, or they would keep the mock for good

    assert ladder
    assert search
    assert sweep
    out, err = io.StringIO(), io.StringIO()
    nothing = Outcome(None, None)
    no_run = mock.patch.object(supervisor, "supervise", return_value=nothing)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), no_run:
        try:
            status = main(list(arguments))
        except SystemExit as leaving:  # --help and --version
            status = int(leaving.code or 0)
    return _judged(Said(status, out.getvalue(), err.getvalue()))


def python(*arguments: str, paths: Sequence[Path | str] = (), **environment: str) -> Said:
    """A Python of its own that has this checkout, with no oracle."""
    own = [str(path) for path in (*paths, ROOT, ROOT / "backends")]
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, errors="replace", check=False, timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(own), **environment},
    )  # fmt: skip
    return Said(done.returncode, done.stdout, done.stderr)


def whole_command(*arguments: str, paths: Sequence[Path | str] = (), **environment: str) -> Said:
    """The whole command with its child process."""
    return _judged(python("-m", "precision_debug", *arguments, paths=paths, **environment))


def _judged(said: Said) -> Said:
    """Status 0 to 3, no traceback, an error is one line, and nothing that steers a terminal."""
    if said.status not in (0, 1, 2, 3):
        raise Lost(f"status {said.status}: {said.err[-300:]}")
    if "Traceback" in said.out + said.err:
        raise Lost(f"a traceback: {said.err[-300:]}")
    if said.status >= 2 and said.err and not re.fullmatch(r"precision_debug: [^\n]+\n", said.err):
        raise Lost(f"an error that is not one line: {said.err[:300]!r}")
    for text in (said.out, said.err):
        if make_visible(text, keep="\n\t") != text:
            raise Lost(f"steers the terminal: {text[:200]!r}")
    return said


def files_of(folder: Path) -> dict[str, str]:
    """Every file and link under a folder with what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def spoiled(random_: random.Random, data: bytes) -> bytes:
    """A file's bytes with some flipped, cut off, doubled or exchanged."""
    data = bytearray(data)
    for _ in range(random_.choice((1, 1, 2, 5, 20))):
        if not data:
            break
        place = random_.randrange(len(data))
        way = random_.randrange(5)
        if way == 0:
            data[place] ^= 1 << random_.randrange(8)
        elif way == 1:
            data[place] = random_.choice((0, 0x7F, 0x80, 0xFF))
        elif way == 2:
            del data[place : place + random_.choice((1, 4, 100))]
        elif way == 3:
            data[place:place] = data[place : place + random_.choice((1, 8, 64))]
        else:
            data[place : place + 4] = random_.randbytes(4)
    return bytes(data)


_ODD = (
    None, True, -1, 0, 2**63, 2**200, 1e308, "", "x", "\x1b[2J", "\ud800", "=1+1", [], {}, [[]], {"$float": "nan"},
    {"$float": []}, [None], {"": None}, "../../etc/passwd", "/dev/zero", "1e999",
)  # fmt: skip


def spoiled_text(random_: random.Random, value: Any) -> str:
    """JSON text in which one place holds something else, or which is not JSON at all."""
    import json

    way = random_.randrange(12)
    text = json.dumps(value)
    if way == 0:
        return text[: random_.randrange(len(text))]
    if way == 1:
        depth = random_.choice((1000, 100_000))
        return "[" * depth + ("" if random_.random() < 0.5 else "]" * depth)
    if way == 2:
        return random_.choice(("", "null", "1e999", "NaN", "[1e999]", "\ufeff{}", "{'a': 1}", '"x"', "0", "[]", "{}"))
    if way == 3:
        numbers = list(re.finditer(r"-?\d+(\.\d+)?", text))
        if numbers:
            found = random_.choice(numbers)
            return text[: found.start()] + random_.choice(("1e999", "-1e999", "NaN", "9" * 5000)) + text[found.end() :]
    return json.dumps(_exchanged(random_, json.loads(text)))


def _exchanged(random_: random.Random, value: Any) -> Any:
    """One place somewhere in it is another thing, gone, or twice there."""
    if isinstance(value, dict) and value and random_.random() < 0.9:
        key = random_.choice(list(value))
        way = random_.random()
        if way < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if way < 0.2:
            return {**value, "unknown": value[key]}
        return {**value, key: _exchanged(random_, value[key])}
    if isinstance(value, list) and value and random_.random() < 0.9:
        place = random_.randrange(len(value))
        return [*value[:place], _exchanged(random_, value[place]), *value[place + 1 :]]
    return random_.choice(_ODD)
