"""Name the files that lie beside a report, and refuse outputs that would overwrite what the same command reads."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import glob
import hashlib
import itertools
import json
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import OutputError, UsageError
from ..ownership import refuse_foreign
from ..reasons import NOTHING, Reason, say
from ..records import RunSpec
from ..settings.options import iterate_differing

__all__ = [
    "forget_inputs",
    "forget_log",
    "forget_tensors",
    "has_usual_name",
    "iterate_named_files",
    "keep_inputs",
    "keep_log",
    "keep_tensors",
    "log_head",
    "refuse_overwriting",
]  # fmt: skip


# Outputs that would overwrite what the same command reads.

_WRITTEN = "save_"
"""Settings of a backend whose names begin so name files that it writes."""

_REPORTS = (".xlsx", ".html", ".md", ".csv")
"""Endings that no reader of a folder takes for its own; .json is one of Paddle's models too."""

_OURS = b'"precision_debug report"'


def refuse_overwriting(outputs: Iterable[str | Path], *read: Any, added: Iterable[str | Path] = ()) -> None:
    """Raise UsageError where an output would overwrite a file that the command reads or writes something else into.

    By whatever name or link; and where it is a file that is somebody else's.

    read: strings, and records, mappings and sequences of them. A string counts where it names a file, a folder,
    SCRIPT.py:function or a pattern of files; what a record's settings save is an output too. added: outputs that are
    added to what is there."""
    named = list(iterate_named_files(*read))
    saved = {option: path for thing in read if isinstance(thing, RunSpec) for option, path in _list_saved(thing)}
    outputs, appended = list(outputs), list(added)
    _refuse_written_twice([*outputs, *appended], saved)
    for output in (*outputs, *appended, *saved.values()):
        for path in named:
            why = _explain_overwritten(str(output), path)
            if why:
                raise UsageError(why, where=str(output), hint=say("another_file"))
        if output not in appended:
            refuse_foreign(output, error=UsageError)
    for path in saved.values():
        for beside in (f"{path}.data", *([f"{path[:-4]}.bin"] if path.endswith(".xml") else ())):
            refuse_foreign(beside, error=UsageError)


def _refuse_written_twice(outputs: Iterable[str | Path], saved: Mapping[str, str]) -> None:
    """The last one would be all that is left; a device takes them all."""
    written: dict[str, str] = {}
    for output in outputs:
        place = _resolve_place(output)
        if place in written:
            raise UsageError(say("output_twice"), where=str(output), hint=say("keep_one"))
        written[place] = "--output"
    for option, path in saved.items():
        place = _resolve_place(path)
        if place in written and (os.path.isfile(place) or not os.path.exists(place)):
            said = say("written_twice", other=written[place])
            raise UsageError(said, where=f"{option} {path}", hint=say("another_file"))
        written[place] = option


def _resolve_place(path: str | Path) -> str:
    """Return what a path names, by whatever link; as it is typed where the current folder is gone."""
    try:
        return os.path.realpath(path)
    except FileNotFoundError:
        return str(path)


def iterate_named_files(*things: Any) -> Iterator[str]:
    """Existing files and folders that strings name, also inside records, mappings and sequences."""
    for text in _iterate_texts(things):
        script = text.partition(".py:")[0] + ".py" if ".py:" in text else text
        for path in (text, script, *(glob.iglob(text, recursive=True) if glob.has_magic(text) else ())):
            if _state_of(path) is not None:
                yield path


def _iterate_texts(thing: Any) -> Iterator[str]:
    if isinstance(thing, str):
        if thing:
            yield thing
    elif isinstance(thing, Path):
        yield str(thing)
    elif isinstance(thing, RunSpec):
        kept = {key: value for key, value in thing.options.items() if not _is_written(key)}
        named = [value for one, value in iterate_differing(thing) if one.file == "read"]
        yield from _iterate_texts((*named, thing.baseline_model, kept))
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        yield from _iterate_texts([getattr(thing, field.name) for field in dataclasses.fields(thing)])
    elif isinstance(thing, Mapping):
        yield from _iterate_texts(list(thing.values()))
    elif isinstance(thing, Sequence) and not isinstance(thing, (bytes, bytearray)):
        for item in thing:
            yield from _iterate_texts(item)


def _list_saved(spec: RunSpec) -> list[tuple[str, str]]:
    """Return what saves something, as it is typed, and where."""
    kept = [(key, one) for key, one in spec.options.items() if _is_written(key) and isinstance(one, str) and one]
    of_backends = [(f"--option {key}", one) for key, one in kept]
    return of_backends + [(one.option, value) for one, value in iterate_differing(spec) if one.file == "written"]


def _is_written(key: str) -> bool:
    """Return whether a backend's setting, maybe of one side, names a file that is written."""
    return key.rpartition(".")[2].startswith(_WRITTEN)


def _explain_overwritten(output: str, read: str) -> Reason:
    """Return what an output would destroy of something that is read; NOTHING where it is nothing."""
    ours, theirs = _state_of(output), _state_of(read)
    if theirs is None:
        return NOTHING
    if stat.S_ISDIR(theirs.st_mode):
        return _explain_inside(output, ours, read)
    same = ours is not None and stat.S_ISREG(ours.st_mode) and os.path.samestat(ours, theirs)
    return say("read_too", path=read) if same else NOTHING


def _explain_inside(output: str, state: os.stat_result | None, folder: str) -> Reason:
    place, root = os.path.realpath(output), os.path.realpath(folder)
    if not place.startswith(os.path.join(root, "")):
        return NOTHING
    if os.path.isfile(os.path.join(root, "manifest.json")):
        return say("read_recording", path=folder)
    if state is None or not stat.S_ISREG(state.st_mode) or place.lower().endswith(_REPORTS) or _is_report(place):
        return NOTHING
    return say("read_folder", path=folder)


def _is_report(path: str) -> bool:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return _OURS in file.read(200)
    return False


def _state_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


# The files that lie beside a report: its run's inputs and worst tensors, and the log of one that ended early.
#
#     output.xlsx               the report
#     output.xlsx.inputs.npz    its inputs
#     output.xlsx.tensors.npz   the worst tensors, where they were asked for
#     output.xlsx.log           what was printed
#
# Each bears a mark that names the reports it belongs to: the comment of the .npz archive, the first line of the log. A
# file without the mark, or whose report is still there and is not written now, is left alone: the next free name
# (output.xlsx.inputs.2.npz) is taken.

_MARK = "precision_debug: belongs to "
_INPUTS, _TENSORS, _LOG = (".inputs", ".npz"), (".tensors", ".npz"), ("", ".log")
_NAME_MAX = 255
"""Bytes of a file's name on the usual file systems."""

_TRIES = 1000
"""Names with a number behind them that are tried where one is taken by a foreign file."""


def keep_inputs(made: Path, outputs: Sequence[Path], read: object = ()) -> Path:
    """Move a run's inputs beside its first report; returns where they are.

    read: what the command named (see ``refuse_overwriting``); inputs that it read from their own place stay there.
    Raises OutputError.
    """
    return _keep(made, outputs, _INPUTS, read)


def keep_tensors(made: Path, outputs: Sequence[Path], read: object = ()) -> Path:
    """Return the same, of the tensors that a run has saved."""
    return _keep(made, outputs, _TENSORS, read)


def _keep(made: Path, outputs: Sequence[Path], kind: tuple[str, str], read: object) -> Path:
    named = {os.path.realpath(path) for path in iterate_named_files(read)}
    with _translate_errors(outputs[0]):
        for place in _iterate_places(outputs[0], *kind):
            owners = _read_owners(place)
            if owners is not None and os.path.realpath(place) in named:
                if owners >= {os.path.realpath(output) for output in outputs} and _hold_same_arrays(made, place):
                    made.unlink()
                    return place
                continue
            with zipfile.ZipFile(made, "a") as archive:
                archive.comment = (_MARK + _list(outputs, place.parent)).encode()
            if _try_to_move(made, place, owners, outputs):
                return place
    raise OutputError(
        "a thousand files of this name exist already", where=str(outputs[0]), hint="name another --output"
    )


def log_head(outputs: Sequence[Path]) -> bytes:
    """Return the first line of a log, by which it is known as ours."""
    return (_MARK + _list(outputs, outputs[0].parent) + "\n").encode() if outputs else b""


def keep_log(made: Path, outputs: Sequence[Path]) -> Path | None:
    """Move a run's log beside its first report; returns where it is, None where nothing was printed."""
    if not made.exists() or made.stat().st_size <= len(log_head(outputs)):
        return None
    with _translate_errors(outputs[0]):
        for place in _iterate_places(outputs[0], *_LOG):
            if _try_to_move(made, place, _read_owners(place), outputs):
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
    for place in _iterate_places(outputs[0], *kind):
        if not os.path.lexists(place):
            return
        if _is_replaceable(_read_owners(place), outputs):
            with contextlib.suppress(OSError):
                place.unlink()


def has_usual_name(output: Path, kept: Path) -> bool:
    """Return whether a file beside a report has its first name, which nothing else had taken."""
    return kept.name in {next(iter(_iterate_places(output, *kind))).name for kind in (_INPUTS, _TENSORS, _LOG)}


def _iterate_places(output: Path, middle: str, suffix: str) -> Iterator[Path]:
    for number in itertools.islice(itertools.count(1), _TRIES):
        ending = f"{middle}{'' if number == 1 else f'.{number}'}{suffix}"
        yield output.with_name(_shorten_name(output.name, _NAME_MAX - len(ending)) + ending)


def _shorten_name(name: str, length: int) -> str:
    """Return a name of at most so many bytes; a longer one ends in a digest of the whole."""
    data = os.fsencode(name)
    if len(data) <= length:
        return name
    return data[: length - 9].decode(errors="ignore") + "-" + hashlib.sha256(data).hexdigest()[:8]


def _list(outputs: Sequence[Path], folder: Path) -> str:
    return json.dumps([os.path.relpath(output, folder) for output in outputs])


def _try_to_move(made: Path, place: Path, owners: set[str] | None, outputs: Sequence[Path]) -> bool:
    """Return whether a file could take a name that is free or ours."""
    if _is_replaceable(owners, outputs):
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


def _is_replaceable(owners: set[str] | None, outputs: Sequence[Path]) -> bool:
    """Return whether a file is ours and of no report but those that are written now."""
    if owners is None:
        return False
    ours = {os.path.realpath(output) for output in outputs}
    return bool(owners & ours) and not any(os.path.lexists(other) for other in owners - ours)


def _read_owners(place: Path) -> set[str] | None:
    """Return the reports that a file's mark names, None where it has none."""
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


def _hold_same_arrays(made: Path, place: Path) -> bool:
    """Return whether two archives hold the same arrays."""
    with zipfile.ZipFile(made) as first, zipfile.ZipFile(place) as second:
        return [(i.filename, i.CRC, i.file_size) for i in first.infolist()] == [
            (i.filename, i.CRC, i.file_size) for i in second.infolist()
        ]


@contextlib.contextmanager
def _translate_errors(output: Path) -> Iterator[None]:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write there: {error.strerror or error}", where=str(output.parent), hint="name another --output"
        ) from error
