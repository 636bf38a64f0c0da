"""Feeds from what the user has on disk: .npz, .npy, Polygraphy's JSON, a folder of these, a dataset, or a script."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..reasons import say, suggest_nearest
from ..records import InputMeta
from ..safety.nearest import list_files_beside
from ..safety.untrusted import refuse_special
from .check import check_names
from .dtypes import Array
from .npz import count_sets, explain_unreadable, load_npz, refuse_more
from .onnx_data import is_data_set, load_data_set
from .polygraphy_json import read_feeds
from .script import load_script, split_script
from .sets import SampleSets, cut, is_dataset, load_dataset, map_npz

__all__ = ["load_sets"]

_KINDS = say("feeds_form")

_LITTLE = 64 << 20
"""Bytes of files that are read as a whole at once, to say early what does not fit."""


def load_sets(source: str, inputs: Sequence[InputMeta], samples_axis: int | None = None) -> SampleSets:
    """Return every sample set, unchecked. samples_axis: each array holds many samples along it. Raises InputError."""
    script = split_script(source)
    if script is not None and not Path(source).is_dir():
        path, function = script
        refuse_special(path, InputError)
        return load_script(path, function)
    path = Path(source)
    refuse_special(path, InputError)
    if path.is_dir():
        return load_dataset(path, inputs) if is_dataset(path) else _load_folder(path, inputs)
    if not path.is_file():
        near = suggest_nearest(source, list_files_beside(source), 1)
        raise InputError(say("no_such_inputs"), where=source, hint=near or _KINDS)
    return _load_file(path, inputs) if samples_axis is None else _load_along_axis(path, inputs, samples_axis)


def _load_file(path: Path, inputs: Sequence[InputMeta]) -> SampleSets:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _make_sample_sets([_name_unnamed(one, inputs) for one in load_npz(path, wanted=inputs)])
    if suffix == ".npy":
        return _make_sample_sets([{_only_input(path, inputs): _load_npy(path)}])
    if suffix == ".json":
        return _make_sample_sets(read_feeds(path))
    raise InputError(say("no_feeds", ending=path.suffix), where=str(path), hint=_KINDS)


def _make_sample_sets(sets: Sequence[Mapping[str, Any]]) -> SampleSets:
    return SampleSets(len(sets), lambda number: dict(sets[number]), cheap=True)


def _load_along_axis(path: Path, inputs: Sequence[InputMeta], axis: int) -> SampleSets:
    """Return the samples of one file whose arrays hold many of them."""
    try:
        if path.suffix.lower() == ".npz":
            arrays = _name_unnamed(map_npz(path), inputs)
        elif path.suffix.lower() == ".npy":
            arrays = {_only_input(path, inputs): np.load(path, mmap_mode="r", allow_pickle=False)}
        else:
            raise InputError(
                f"'{path.suffix}' files have no --samples_axis", where=str(path), hint="give a .npz or .npy"
            )
    except InputError:
        raise
    except Exception as error:  # numpy, zlib and zipfile raise many kinds on a damaged file
        raise InputError(explain_unreadable(error), where=str(path)) from error
    check_names(dict.fromkeys(arrays), inputs, where=str(path))
    return cut(arrays, axis, inputs, str(path))


def _load_folder(folder: Path, inputs: Sequence[InputMeta]) -> SampleSets:
    entries = sorted(folder.iterdir(), key=_natural_sort_key)
    for entry in entries:
        if entry.suffix.lower() in (".npz", ".npy"):
            refuse_special(entry, InputError)
    npz = [entry for entry in entries if entry.suffix.lower() == ".npz"]
    npy = [entry for entry in entries if entry.suffix.lower() == ".npy"]
    data_sets = [entry for entry in entries if entry.is_dir() and is_data_set(entry)]
    here = [folder] if is_data_set(folder) else []
    json = [entry for entry in entries if entry.suffix.lower() == ".json" and entry.stem.isdigit()]
    found = {".npz files": npz, ".npy files": npy, "test data sets": here + data_sets, ".json files": json}
    kinds = [kind for kind, entries in found.items() if entries]
    if len(kinds) > 1:
        raise InputError(
            f"the folder has {' and '.join(kinds)}", where=str(folder), hint="keep one kind, or name the file"
        )
    if npz:
        return _load_files(npz, inputs)
    if json:  # Polygraphy's, one an iteration
        return _make_sample_sets([one for entry in json for one in read_feeds(entry)])
    if npy:
        if _is_sample_each(npy, inputs):
            name = _only_input(npy[0], inputs)
            return _read([functools.partial(_load_npy_feed, file, name) for file in npy], npy)
        return _make_sample_sets([_load_by_stem(folder, npy, inputs)])
    if not kinds:
        raise InputError(say("no_data_files"), where=str(folder), hint=_KINDS)
    return _make_sample_sets([load_data_set(entry, inputs) for entry in here + data_sets])


def _load_npy_feed(file: Path, name: str) -> dict[str, Any]:
    return {name: _load_npy(file)}


def _is_sample_each(files: Sequence[Path], inputs: Sequence[InputMeta]) -> bool:
    """Return whether each .npy file is a sample of the only input: several, and none bears an input's name."""
    names = {re.sub(r"[^\w.\-]", "_", meta.name) for meta in inputs} | {meta.name for meta in inputs}
    needed = [meta for meta in inputs if not meta.optional] or list(inputs)
    return len(files) > 1 and len(needed) == 1 and not any(file.stem in names for file in files)


def _load_files(files: Sequence[Path], inputs: Sequence[InputMeta]) -> SampleSets:
    loads: list[Callable[[], Mapping[str, Any]]] = []
    for file in files:
        for number in range(count_sets(file)):
            loads.append(functools.partial(_load_one, file, number, inputs))
    return _read(loads, files)


def _load_one(file: Path, number: int, inputs: Sequence[InputMeta]) -> dict[str, Any]:
    return _name_unnamed(load_npz(file, inputs, number)[0], inputs)


def _read(loads: Sequence[Callable[[], Mapping[str, Any]]], files: Sequence[Path]) -> SampleSets:
    """One set a call; together they are read at once where the files are small."""
    size = sum(file.stat().st_size for file in files)
    return SampleSets(len(loads), lambda number: dict(loads[number]()), cheap=size <= _LITTLE)


def _load_by_stem(folder: Path, files: Sequence[Path], inputs: Sequence[InputMeta]) -> dict[str, Array]:
    """One input a file. A name that no file can have ("a/b:0") is found under "a_b_0" too."""
    names = {meta.name for meta in inputs}
    plain: dict[str, list[str]] = {}
    for name in names:
        plain.setdefault(re.sub(r"[^\w.\-]", "_", name), []).append(name)
    feeds: dict[str, Array] = {}
    for file in files:
        near = plain.get(file.stem, [])
        name = file.stem if file.stem in names or len(near) != 1 else near[0]
        if name in feeds:
            raise InputError(f"two files hold the input '{name}'", where=str(folder), hint="keep one")
        feeds[name] = _load_npy(file)
    return feeds


def _only_input(path: Path, inputs: Sequence[InputMeta]) -> str:
    needed = [meta.name for meta in inputs if not meta.optional] or [meta.name for meta in inputs]
    if len(needed) != 1:
        raise InputError(
            f"a .npy file holds one array and the model has {len(needed)} inputs: {', '.join(needed) or 'none'}",
            where=str(path),
            hint="give a .npz file with the names as keys, or a folder with a NAME.npy for each",
        )
    return needed[0]


def _name_unnamed(feeds: dict[str, Any], inputs: Sequence[InputMeta]) -> dict[str, Any]:
    """numpy.savez(file, array) keeps no name; with one input it needs none."""
    names = [meta.name for meta in inputs]
    if list(feeds) == ["arr_0"] and len(names) == 1 and names[0] != "arr_0":
        return {names[0]: feeds["arr_0"]}
    return feeds


def _load_npy(path: Path) -> Array:
    try:
        with path.open("rb") as file:
            array = np.asarray(np.load(file, allow_pickle=False))
            refuse_more(file, path)
            return array
    except InputError:
        raise
    except Exception as error:  # numpy raises many kinds on a damaged file
        raise InputError(explain_unreadable(error), where=str(path), hint=say("write_save")) from error


def _natural_sort_key(path: Path) -> tuple[list[tuple[int, str]], str]:
    parts = re.findall(r"\d+|\D+", path.name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts], path.name
