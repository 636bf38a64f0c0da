"""What an earlier command left: checkpoints that are stale or were tampered with, and folders of TMPDIR."""

from __future__ import annotations

import errno
import functools
import json
import os
import random
import tempfile
from pathlib import Path
from unittest import mock

import onnx
from onnx_models import mlp

from precision_debug.errors import OutputError, PrecisionDebugError
from precision_debug.observe.shard import Shard
from precision_debug.ownership import remember
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run import locked_folder
from precision_debug.run.child import as_ours
from precision_debug.run.locked_folder import take
from precision_debug.run.parallel_run import Checkpoint

from .case import Lost, own_error

__all__ = ["machines_refusals", "stale_checkpoints", "tampered_checkpoints", "tmpdirs"]

_FILES = (
    "m.onnx", "weights", "in/0.npz", "in/1.npz", "labels.npy", "code/metric.py", "code/helper.py", "table.json",
    "base/t.raw",
)  # fmt: skip
_SAMPLES = range(10)


def _command(folder: Path) -> RunSpec:
    """A command that names a file of every kind."""
    onnx.save_model(mlp(), str(folder / "m.onnx"), save_as_external_data=True, location="weights", size_threshold=0)
    for name in _FILES[2:]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(f"{name}: 123".encode())
    return RunSpec(
        model=ModelFiles(model_file=str(folder / "m.onnx")), run_mode="ort_opt", baseline=str(folder / "base"),
        inputs=str(folder / "in"), labels=str(folder / "labels.npy"), metric=f"{folder / 'code' / 'metric.py'}:f",
        options={"table": str(folder / "table.json")},
    )  # fmt: skip


def _part(*ranges: object) -> str:
    return json.dumps({**_empty(), "samples": list(ranges)})


@functools.cache
def _empty() -> dict[str, object]:
    plain: dict[str, object] = json.loads(Shard().to_text())
    return plain


def stale_checkpoints(random_: random.Random, folder: Path) -> None:
    """Something that decides is another than it was, by one byte and with the times of before; or nothing is."""
    spec = _command(folder)
    kept = Checkpoint(str(folder / "kept"), spec, samples=_SAMPLES)
    kept.add(_part([0, 2]))
    path = folder / random_.choice(_FILES)
    way = random_.choice((
        "flipped", "shorter", "longer", "gone", "linked", "touched", "rewritten", "beside", "by a script", "ours",
    ))  # fmt: skip
    before, data = path.stat(), path.read_bytes()
    place = random_.randrange(len(data))
    if way == "flipped":
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << random_.randrange(8)]) + data[place + 1 :])
    elif way == "shorter":
        path.write_bytes(data[:-1])
    elif way == "longer":
        path.write_bytes(data + b"\0")
    elif way == "gone":
        path.unlink()
    elif way == "linked":
        (folder / "other").write_bytes(data + b" ")
        path.unlink()
        path.symlink_to(folder / "other")
    elif way == "rewritten":
        path.unlink()
        path.write_bytes(data)
    elif way in ("beside", "by a script", "ours"):
        place_of = folder if way == "beside" else folder / "code"
        other = place_of / random_.choice(("notes.txt", "r.html", "out.xlsx"))
        other.write_bytes(b"of nobody's interest" if way == "beside" else b"a script may read this")
        if way == "ours":
            remember(other)  # as of whatever this tool writes
    if way in ("flipped", "shorter", "longer"):
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    if way == "touched":
        os.utime(path)
    same = way in ("touched", "rewritten", "beside", "ours")
    said = own_error(lambda: Checkpoint(str(folder / "kept"), spec, samples=_SAMPLES))
    if same and said:
        raise Lost(f"{path.name} {way}: refused though nothing changed: {said}")
    if not same and "changed since it was created" not in said:
        raise Lost(f"{path.name} {way}: passes by the parts of before: {said!r}")


_RANGES = ([-5, 1], [0, 1_000_000], [500, 501], [9, 11], [3, 3], [4, 2], [0, 2.0], [False, True], [0, 10**30], [0],
           [1, 2, 3], "ab", None, [None, 1], [0, float(2)], [-1, -1], ["0", "2"], {})  # fmt: skip


def tampered_checkpoints(random_: random.Random, folder: Path) -> None:
    """Lines that were changed, or that say what the command cannot have given, be their checksum right or not."""
    spec = RunSpec(model=ModelFiles(), run_mode="m")
    path = folder / "kept"
    kept = Checkpoint(str(path), spec, samples=_SAMPLES)
    parts = [_part([0, 2]), _part([2, 5]), _part([7, 8])]
    for part in parts:
        kept.add(part)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    place, way = random_.randrange(1, len(lines)), random_.randrange(7)
    if way == 0:  # a right checksum
        ranges = [random_.choice(_RANGES) for _ in range(random_.choice((1, 1, 2)))]
        kept.add(_part(*ranges) if random_.random() < 0.9 else _part())
    else:
        text = lines[place]
        at = random_.randrange(len(text) - 1)
        other = random_.choice("0123456789abcdef[]{},: \"")
        changed = {
            1: text[:at] + (other if other != text[at] else "x") + text[at + 1 :], 2: text[:at] + text[at + 1 :],
            3: text.partition(" ")[2], 4: text.replace("samples", "sample"), 5: text[:33] + _part([5, 7]) + "\n",
            6: lines[place % 3 + 1][:33] + text[33:],
        }[way]  # fmt: skip
        lines[place] = changed
        path.write_text("".join(lines), encoding="utf-8")
        if changed in (text,):
            return
    try:
        Checkpoint(str(path), spec, samples=_SAMPLES)
    except OutputError as error:
        if "is damaged" not in str(error):
            raise Lost(f"the error does not say which line: {error}") from error
    else:
        raise Lost(f"way {way}: a damaged line passes")


def tmpdirs(random_: random.Random, folder: Path) -> None:
    """Of folders of ours, those that nobody holds go, and nothing else."""
    stay, held = set[str](), list[int]()
    for number in range(random_.randrange(1, 12)):
        kind = random_.choice(("dead", "held", "other name", "no mark", "a file", "a link", "mark is a folder"))
        path = folder / f"{'other' if kind == 'other name' else locked_folder.SCRATCH}{number}"
        if kind == "a file":
            path.touch()
        elif kind == "a link":
            (folder / f"theirs{number}").mkdir()
            (folder / f"theirs{number}" / locked_folder.HELD).touch()
            path.symlink_to(folder / f"theirs{number}")
            stay.add(f"theirs{number}")
        else:
            path.mkdir()
            for inside in range(random_.randrange(3)):
                (path / f"{inside}").write_bytes(b"x")
            if kind == "mark is a folder":
                (path / locked_folder.HELD).mkdir()
            elif kind != "no mark":
                handle = take(path / locked_folder.HELD)
                assert handle is not None
                held.append(handle)
                if kind == "dead" or kind == "other name":
                    os.close(held.pop())
        if kind != "dead":
            stay.add(path.name)
    with mock.patch.object(tempfile, "tempdir", str(folder)):
        locked_folder.clear_scratch()
        with locked_folder.make_scratch_folder() as (mine, _):
            locked_folder.clear_scratch()
            if not mine.is_dir():
                raise Lost("a folder that is held was cleared")
    for handle in held:
        os.close(handle)
    there = {path.name for path in folder.iterdir()}
    if there != stay:
        raise Lost(f"left too much or too little: {sorted(there ^ stay)}")


_ERRNOS = {
    errno.ENOSPC: 2, errno.EDQUOT: 2, errno.EFBIG: 2, errno.EMFILE: 2, errno.ENFILE: 2, errno.ENOMEM: 3,
}  # fmt: skip


def machines_refusals(random_: random.Random, folder: Path) -> None:
    """What the machine refuses is told as such, however deep in an exception it is; what it does not is not."""
    number = random_.choice((*_ERRNOS, errno.EINVAL, None))
    error: BaseException = ValueError("a bug") if number is None else OSError(number, os.strerror(number), str(folder))
    if random_.random() < 0.2:
        error, number = MemoryError("no room"), errno.ENOMEM
    for _ in range(random_.randrange(4)):
        outer = random_.choice((RuntimeError, ValueError, KeyError, OSError))("outer")
        if random_.random() < 0.5:
            outer.__cause__ = error
        else:
            outer.__context__ = error
        error = outer
    known: PrecisionDebugError = as_ours(error)
    status = _ERRNOS.get(number) if number is not None else None
    if status is None and "internal error" not in str(known):
        raise Lost(f"a bug is blamed on the machine: {known}")
    if status is not None and ("internal error" in str(known) or known.exit_status != status):
        raise Lost(f"{errno.errorcode[number or 0]}: {known} ({known.exit_status})")
