"""The files that lie beside a report: its run's inputs and worst tensors, and the log of one that ended early.

    output.xlsx               the report
    output.xlsx.inputs.npz    its inputs
    output.xlsx.tensors.npz   the worst tensors, where they were asked for
    output.xlsx.log           what was printed

Each bears a mark that names the reports it belongs to: the comment of the .npz archive, the first line of the log. A
file without the mark, or whose report is still there and is not written now, is left alone: the next free name
(output.xlsx.inputs.2.npz) is taken.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import stat
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import OutputError
from .overwriting import files_named

__all__ = [
    "forget_inputs", "forget_log", "forget_tensors", "keep_inputs", "keep_log", "keep_tensors", "log_head", "usual",
]  # fmt: skip

_MARK = "precision_debug: belongs to "
_INPUTS, _TENSORS, _LOG = (".inputs", ".npz"), (".tensors", ".npz"), ("", ".log")
_NAME_MAX = 255
"""Bytes of a file's name on the usual file systems."""

_TRIES = 1000
"""Names with a number behind them that are tried where one is taken by a foreign file."""


def keep_inputs(made: Path, outputs: Sequence[Path], read: object = ()) -> Path:
    """Move a run's inputs beside its first report; returns where they are.

    read: what the command named (see ``conflicts``); inputs that it read from their own place stay there.
    Raises OutputError.
    """
    return _keep(made, outputs, _INPUTS, read)


def keep_tensors(made: Path, outputs: Sequence[Path], read: object = ()) -> Path:
    """The same, of the tensors that a run has saved."""
    return _keep(made, outputs, _TENSORS, read)


def _keep(made: Path, outputs: Sequence[Path], kind: tuple[str, str], read: object) -> Path:
    named = {os.path.realpath(path) for path in files_named(read)}
    with _our_errors(outputs[0]):
        for place in _places(outputs[0], *kind):
            owners = _owners(place)
            if owners is not None and os.path.realpath(place) in named:
                if owners >= {os.path.realpath(output) for output in outputs} and _same(made, place):
                    made.unlink()
                    return place
                continue
            with zipfile.ZipFile(made, "a") as archive:
                archive.comment = (_MARK + _list(outputs, place.parent)).encode()
            if _moved(made, place, owners, outputs):
                return place
    raise OutputError(
        "a thousand files of this name exist already", where=str(outputs[0]), hint="name another --output"
    )


def log_head(outputs: Sequence[Path]) -> bytes:
    """The first line of a log, by which it is known as ours."""
    return (_MARK + _list(outputs, outputs[0].parent) + "\n").encode() if outputs else b""


def keep_log(made: Path, outputs: Sequence[Path]) -> Path | None:
    """Move a run's log beside its first report; returns where it is, None where nothing was printed."""
    if not made.exists() or made.stat().st_size <= len(log_head(outputs)):
        return None
    with _our_errors(outputs[0]):
        for place in _places(outputs[0], *_LOG):
            if _moved(made, place, _owners(place), outputs):
                return place
    return None


def forget_log(outputs: Sequence[Path]) -> None:
    """Remove the log that an earlier run into the same reports left."""
    _forget(outputs, _LOG)


def forget_inputs(outputs: Sequence[Path]) -> None:
    """Remove the inputs that lie beside reports, which have no others then."""
    _forget(outputs, _INPUTS)


def forget_tensors(outputs: Sequence[Path]) -> None:
    """Remove the tensors that an earlier run into the same reports saved."""
    _forget(outputs, _TENSORS)


def _forget(outputs: Sequence[Path], kind: tuple[str, str]) -> None:
    for place in _places(outputs[0], *kind):
        if not os.path.lexists(place):
            return
        if _replaceable(_owners(place), outputs):
            with contextlib.suppress(OSError):
                place.unlink()


def usual(output: Path, kept: Path) -> bool:
    """Whether a file beside a report has its first name, which nothing else had taken."""
    return kept.name in {next(iter(_places(output, *kind))).name for kind in (_INPUTS, _TENSORS, _LOG)}


def _places(output: Path, middle: str, suffix: str) -> Iterator[Path]:
    for number in itertools.islice(itertools.count(1), _TRIES):
        ending = f"{middle}{'' if number == 1 else f'.{number}'}{suffix}"
        yield output.with_name(_short(output.name, _NAME_MAX - len(ending)) + ending)


def _short(name: str, length: int) -> str:
    """A name of at most so many bytes; a longer one ends in a digest of the whole."""
    data = os.fsencode(name)
    if len(data) <= length:
        return name
    return data[: length - 9].decode(errors="ignore") + "-" + hashlib.sha256(data).hexdigest()[:8]


def _list(outputs: Sequence[Path], folder: Path) -> str:
    return json.dumps([os.path.relpath(output, folder) for output in outputs])


def _moved(made: Path, place: Path, owners: set[str] | None, outputs: Sequence[Path]) -> bool:
    """Whether a file could take a name that is free or ours."""
    if _replaceable(owners, outputs):
        os.chmod(made, stat.S_IMODE(place.stat().st_mode))
        os.replace(made, place)
        return True
    try:
        os.link(made, place)  # unlike a rename, it never replaces what came meanwhile
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS) or os.path.lexists(place):
            raise
        os.replace(made, place)
        return True
    made.unlink()
    return True


def _replaceable(owners: set[str] | None, outputs: Sequence[Path]) -> bool:
    """Whether a file is ours and of no report but those that are written now."""
    if owners is None:
        return False
    ours = {os.path.realpath(output) for output in outputs}
    return bool(owners & ours) and not any(os.path.lexists(other) for other in owners - ours)


def _owners(place: Path) -> set[str] | None:
    """The reports that a file's mark names, None where it has none."""
    with contextlib.suppress(OSError, ValueError, RecursionError, zipfile.BadZipFile, NotImplementedError):
        if not stat.S_ISREG(os.lstat(place).st_mode):
            return None
        if place.suffix == ".npz":
            with zipfile.ZipFile(place) as archive:
                line = archive.comment
        else:
            with place.open("rb") as file:
                line = file.readline(1 << 16)
        text = line.decode()
        names = json.loads(text.removeprefix(_MARK)) if text.startswith(_MARK) else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return {os.path.realpath(place.parent / name) for name in names}
    return None


def _same(made: Path, place: Path) -> bool:
    """Whether two archives hold the same arrays."""
    with zipfile.ZipFile(made) as first, zipfile.ZipFile(place) as second:
        return [(i.filename, i.CRC, i.file_size) for i in first.infolist()] == [
            (i.filename, i.CRC, i.file_size) for i in second.infolist()
        ]


@contextlib.contextmanager
def _our_errors(output: Path) -> Iterator[None]:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write there: {error.strerror or error}", where=str(output.parent), hint="name another --output"
        ) from error
