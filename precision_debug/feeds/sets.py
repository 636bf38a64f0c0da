"""Sample sets that are read when they are asked for, one at a time: a thousand of them need no memory for two."""

from __future__ import annotations

import struct
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from ..errors import InputError
from ..reasons import say
from ..records import InputMeta
from .dtypes import Array
from .npz import refuse_twice

__all__ = ["SampleSets", "cut", "is_dataset", "load_dataset", "map_npz"]


Feeds = dict[str, Any]


class SampleSets(Sequence[Feeds]):
    """A sequence of ``count`` sample sets; load: from a number, from 0, to the set, whose arrays the caller may keep.

    cheap: to go through all of them costs little. The last one that was asked for is kept. Safe to use from several
    threads.
    """

    def __init__(self, count: int, load: Callable[[int], Feeds], *, cheap: bool = False) -> None:
        self._count, self._load, self.cheap = count, load, cheap
        self._lock = threading.Lock()
        self._last: tuple[int, Feeds] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Feeds: ...
    @overload
    def __getitem__(self, number: slice) -> SampleSets: ...
    def __getitem__(self, number: int | slice) -> Feeds | SampleSets:
        if isinstance(number, slice):
            chosen = range(self._count)[number]
            return SampleSets(len(chosen), lambda place: self[chosen[place]], cheap=self.cheap)
        place = range(self._count)[number]
        with self._lock:
            if self._last is None or self._last[0] != place:
                self._last = None  # two at a time would take twice the memory
                self._last = place, self._load(place)
            return self._last[1]

    def __iter__(self) -> Iterator[Feeds]:
        return (self[number] for number in range(self._count))

    def each(self, change: Callable[[Feeds], Feeds]) -> SampleSets:
        """Return the same sample sets, each one changed when it is asked for."""
        return SampleSets(self._count, lambda number: change(self[number]), cheap=self.cheap)


# Samples of a Hugging Face dataset that lies in a folder, as ``Dataset.save_to_disk`` wrote it.

def is_dataset(folder: Path) -> bool:
    """Return whether a folder is a saved dataset; nothing is imported."""
    return (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()


def load_dataset(folder: Path, inputs: Sequence[InputMeta]) -> SampleSets:
    """Load a sample a row: the columns that the model's inputs are named by; a row of a lower rank gets a batch of one.

    Needs the package ``datasets``. Raises InputError.
    """
    try:
        import datasets
    except ImportError as error:
        raise InputError("this is a dataset folder", where=str(folder), hint="pip install datasets") from error
    try:
        rows: Any = datasets.load_from_disk(str(folder)).with_format("numpy")
        columns = [meta for meta in inputs if meta.name in rows.column_names]
    except Exception as error:
        raise InputError(f"the dataset cannot be read: {type(error).__name__}: {error}", where=str(folder)) from error
    absent = [meta.name for meta in inputs if not meta.optional and meta.name not in rows.column_names]
    if absent:
        raise InputError(
            f"the dataset has no column {absent[0]!r}", where=str(folder), hint=f"it has {', '.join(rows.column_names)}"
        )

    def sample(number: int) -> dict[str, Any]:
        row = rows[number]
        return {meta.name: _add_batch_axis(np.asarray(row[meta.name]), meta) for meta in columns}

    return SampleSets(len(rows), sample)


def _add_batch_axis(value: np.ndarray[Any, Any], meta: InputMeta) -> np.ndarray[Any, Any]:
    return value[None] if meta.shape is not None and len(meta.shape) == value.ndim + 1 else value


# Many samples in one array a input: cut along an axis, without reading what is not asked for where the file allows.

def cut(arrays: Mapping[str, Array], axis: int, inputs: Sequence[InputMeta], where: str) -> SampleSets:
    """One sample a step along ``axis``: as many entries as the model's input has there where that is fixed, else one.

    An input of a lower rank than its array gets a sample without the axis. Raises InputError.
    """
    metas = {meta.name: meta for meta in inputs}
    steps: dict[str, int] = {}
    counts: dict[str, int] = {}
    for name, array in arrays.items():
        if not -array.ndim <= axis < array.ndim:
            what = say("no_axis", name=name, count=array.ndim, axis=axis)
            raise InputError(what, where=where, hint=say("see_samples_axis"))
        shape = metas[name].shape if name in metas else None
        without = shape is not None and len(shape) == array.ndim - 1
        fixed = None if shape is None or len(shape) != array.ndim else shape[axis]
        steps[name] = 0 if without else fixed if isinstance(fixed, int) and fixed > 0 else 1
        counts[name], left = divmod(array.shape[axis], max(1, steps[name]))
        if left:
            raise InputError(
                f"axis {axis} of input '{name}' has {array.shape[axis]} entries, no multiple of the model's {fixed}",
                where=where, hint="leave some out",
            )  # fmt: skip
    if len(set(counts.values())) != 1:
        lengths = ", ".join(f"{name}: {count}" for name, count in counts.items()) or "none"
        raise InputError(f"the inputs have different numbers of samples ({lengths})", where=where)

    def sample(number: int) -> dict[str, Any]:
        return {name: np.array(_cut_part(array, axis, number, steps[name])) for name, array in arrays.items()}

    return SampleSets(next(iter(counts.values())), sample, cheap=False)


def _cut_part(array: Array, axis: int, number: int, step: int) -> Array:
    if step == 0:
        taken: Array = np.take(array, number, axis=axis)
        return taken
    place: list[slice] = [slice(None)] * array.ndim
    place[axis] = slice(number * step, (number + 1) * step)
    return array[tuple(place)]


def map_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of a .npz file over the file itself where they lie in it as they are, else read. May raise
    much."""
    found: dict[str, Array] = {}
    with path.open("rb") as file, zipfile.ZipFile(file) as archive, np.load(path, allow_pickle=False) as loaded:
        refuse_twice(loaded.files, path)
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            mapped = _map_member(path, file, info) if info.compress_type == zipfile.ZIP_STORED else None
            found[name] = loaded[name] if mapped is None else mapped
    return found


def _map_member(path: Path, file: Any, info: zipfile.ZipInfo) -> Array | None:
    file.seek(info.header_offset)
    head = file.read(30)
    name, extra = struct.unpack("<HH", head[26:30])
    file.seek(info.header_offset + 30 + name + extra)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        return None
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if fortran or dtype.hasobject or 0 in shape or not shape:
        return None
    return np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=shape)
