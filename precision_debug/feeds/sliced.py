"""Many samples in one array a input: cut along an axis, without reading what is not asked for where the file allows."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..reasons import say
from ..records import InputMeta
from .dtypes import Array
from .npz import refuse_twice
from .sets import SampleSets

__all__ = ["cut", "mapped_npz"]


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
        return {name: np.array(_part(array, axis, number, steps[name])) for name, array in arrays.items()}

    return SampleSets(next(iter(counts.values())), sample, cheap=False)


def _part(array: Array, axis: int, number: int, step: int) -> Array:
    if step == 0:
        taken: Array = np.take(array, number, axis=axis)
        return taken
    place: list[slice] = [slice(None)] * array.ndim
    place[axis] = slice(number * step, (number + 1) * step)
    return array[tuple(place)]


def mapped_npz(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file over the file itself where they lie in it as they are, else read. May raise much."""
    found: dict[str, Array] = {}
    with path.open("rb") as file, zipfile.ZipFile(file) as archive, np.load(path, allow_pickle=False) as loaded:
        refuse_twice(loaded.files, path)
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            mapped = _mapped(path, file, info) if info.compress_type == zipfile.ZIP_STORED else None
            found[name] = loaded[name] if mapped is None else mapped
    return found


def _mapped(path: Path, file: Any, info: zipfile.ZipInfo) -> Array | None:
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
