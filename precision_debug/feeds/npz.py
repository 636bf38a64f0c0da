"""Feeds in one .npz file that numpy alone can read, and back without loss.

An array lies under its input's name where the file has one sample set and the name suits a zip entry, otherwise under
a made-up key. The entry ``__feeds__`` is JSON text: {"version": 1, "sets": [[[name, value], ...], ...]}, where a value
is {"key": ..., "dtype": ...}, {"sequence": [value, ...]}, {"map": [keys, values]} or {"none": true}. Its dtype
restores the types that .npy does not know; such an array is stored as unsigned integers of its bits.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..codec import parse_json
from ..errors import InputError, OutputError
from ..ownership import MARK, refuse_foreign
from ..protocols import Feeds
from ..reasons import Reason, say
from ..records import InputMeta
from ..safety.untrusted import refuse_special
from .check import check_names
from .dtypes import Array, dtype_name, from_plain, to_plain

__all__ = ["count_sets", "explain_unreadable", "load_npz", "refuse_more", "refuse_twice", "save_feeds"]

_INDEX = "__feeds__"
_VERSION = 1
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every member, the earliest that a zip can hold: the same arrays are the same bytes whenever they are
written."""


def save_feeds(path: str | Path, feeds: Feeds | Sequence[Feeds]) -> Path:
    """Write one sample set or several; ``make_feeds(source=path)`` reads back the same names, types and bits.

    The file is written beside and renamed, and equal feeds give equal bytes. Raises OutputError, also where a file of
    the name is not ours.
    """
    target = Path(path)
    sets = [feeds] if isinstance(feeds, Mapping) else list(feeds)
    if target.suffix.lower() != ".npz":
        raise OutputError("feeds are written as .npz", where=str(target), hint="end the name with .npz")
    refuse_foreign(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                _write(archive, sets)
                archive.comment = MARK.encode()
            Path(draft).chmod(0o666 & ~_read_umask())
            os.replace(draft, target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        raise OutputError(f"the feeds could not be written: {error}", where=str(target)) from error
    return target


def count_sets(path: Path) -> int:
    """Return how many sample sets a .npz file holds, the arrays unread. Raises InputError."""
    with _open_archive(path) as archive:
        return len(_read_index(archive, path)) if _INDEX in archive.files else 1


def load_npz(
    path: Path, wanted: Sequence[InputMeta] | None = None, only: int | None = None
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the sample sets of a .npz file: of ``save_feeds``, or of ``numpy.savez`` with input names as keys.

    Only what is used is inflated: a few kilobytes may hold many gigabytes. wanted: the model's inputs; names of others
    are refused unread. only: this one of the sample sets. Raises InputError.
    """
    refuse_special(path, InputError)
    with _open_archive(path) as archive:
        if _INDEX in archive.files:
            return _read_sets(archive, path, only)
        if wanted is not None and archive.files != ["arr_0"]:
            check_names(dict.fromkeys(archive.files), wanted, where=str(path))
        return [{key: archive[key] for key in archive.files}]


@contextlib.contextmanager
def _open_archive(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            refuse_twice(archive.files, path)
            yield archive
    except InputError:
        raise
    except Exception as error:  # numpy, zlib and zipfile raise many kinds on a damaged file
        raise InputError(
            explain_unreadable(error), where=str(path), hint=say("write_savez")
        ) from error


def refuse_twice(names: Sequence[str], path: Path) -> None:
    """Refuse two arrays of one name: numpy reads the last and keeps quiet about the first. Raises InputError."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        said = say("array_twice", names=[repr(name) for name in twice])
        raise InputError(said, where=str(path), hint=say("write_savez"))


def refuse_more(file: IO[bytes], path: Path) -> None:
    """Refuse what follows the array of an open .npy file: numpy.save may have been called twice. Raises InputError."""
    if file.read(1):
        raise InputError(say("more_than_an_array"), where=str(path), hint=say("write_save"))


def _read_sets(archive: Mapping[str, Array], path: Path, only: int | None) -> list[dict[str, Any]]:
    sets = _read_index(archive, path)
    try:
        return [
            {name: _decode(value, archive) for name, value in one} for one in (sets if only is None else [sets[only]])
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"its {_INDEX} entry is damaged: {error}", where=str(path)) from error


def _read_index(archive: Mapping[str, Array], path: Path) -> list[Any]:
    try:
        index = parse_json(str(archive[_INDEX]))
        version = index["version"]
        if version != _VERSION:
            raise InputError(f"written by another version (feeds format {version}, not {_VERSION})", where=str(path))
        sets: list[Any] = index["sets"]
        return list(sets)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"its {_INDEX} entry is damaged: {error}", where=str(path)) from error


def explain_unreadable(error: Exception) -> Reason:
    """Return why numpy could not load a file, in one clause."""
    if "allow_pickle" in str(error):
        return say("python_objects")
    return say("cannot_read", error=f"{type(error).__name__}: {error}")


def _write(archive: zipfile.ZipFile, sets: Sequence[Feeds]) -> None:
    index: list[list[tuple[str, Any]]] = []
    count = 0

    def put(name: str, value: Any, plain: bool) -> Any:
        nonlocal count
        if value is None:
            return {"none": True}
        if isinstance(value, (list, tuple)):
            return {"sequence": [put(name, item, False) for item in value]}
        if isinstance(value, Mapping):
            return {"map": [put(name, np.asarray(list(part)), False) for part in (value, value.values())]}
        array = np.asarray(value)
        if array.dtype.kind in "OT":
            array = array.astype(np.str_)
        key = name if plain else f"__array_{count}__"
        count += 1
        _write_entry(archive, key, to_plain(array))
        return {"key": key, "dtype": dtype_name(array.dtype)}

    for one in sets:
        index.append([(name, put(name, value, len(sets) == 1 and _suits_zip(name))) for name, value in one.items()])
    _write_entry(archive, _INDEX, np.array(json.dumps({"version": _VERSION, "sets": index})))


def _write_entry(archive: zipfile.ZipFile, key: str, array: Array) -> None:
    info = zipfile.ZipInfo(f"{key}.npy", date_time=_EPOCH)
    info.external_attr = 0o644 << 16
    with archive.open(info, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _suits_zip(name: str) -> bool:
    plain = name.isascii() and name.isprintable() and "\\" not in name and len(name) < 200
    return plain and not name.startswith(("__", "/"))


def _decode(value: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    if value.get("none"):
        return None
    if "sequence" in value:
        return [_decode(item, arrays) for item in value["sequence"]]
    if "map" in value:
        return dict(zip(*(_decode(item, arrays).tolist() for item in value["map"]), strict=True))
    return from_plain(arrays[value["key"]], value["dtype"])


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
