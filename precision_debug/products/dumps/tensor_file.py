"""One file with tensors of somebody's run: .npy, .npz, .safetensors, PyTorch's .pt, raw bytes, or numbers as text.

Nothing is unpickled but tensors, and no framework is needed.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RecordingError
from ...feeds.dtypes import as_dtype
from ...feeds.npz import load_npz
from ...safety.untrusted import refuse_special

__all__ = ["ENDINGS", "RAW", "TEXT", "read_tensors"]

Array = np.ndarray[Any, Any]

RAW = (".raw", ".bin", ".dat")
TEXT = (".txt", ".tensor", ".text")
ENDINGS = (".npy", ".npz", ".safetensors", ".pt", ".pth", *RAW, *TEXT)

_SAFE = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip
_MOST_TEXT = 1 << 28
"""Bytes of a text file that are read as numbers."""


def read_tensors(path: Path, dtype: str = "float32") -> Iterator[tuple[str, Array, tuple[int, ...] | None]]:
    """Yield the name inside the file ("" of a file of one), value, and shape (None: the file does not say).

    dtype: of raw bytes. Raises RecordingError.
    """
    refuse_special(path, RecordingError)
    ending = path.suffix.lower()
    try:
        if ending == ".npy":
            array = np.load(path, mmap_mode="r" if path.stat().st_size > 1 << 16 else None, allow_pickle=False)
            yield "", _name_type(array, dtype), tuple(array.shape)
        elif ending == ".npz":
            for values in load_npz(path):
                for name, value in values.items():
                    yield name, _name_type(np.asarray(value), dtype), tuple(np.shape(value))
        elif ending == ".safetensors":
            yield from _read_safetensors(path)
        elif ending in {".pt", ".pth"}:
            yield from _read_torch(path)
        elif ending in TEXT:
            yield "", _read_text(path), None
        else:
            yield "", _read_raw(path, dtype), None
    except RecordingError:
        raise
    except Exception as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise RecordingError(f"holds no tensor that can be read ({what})", where=str(path)) from error


def _name_type(array: Array, dtype: str) -> Array:
    """Return numbers of a type of ml_dtypes, which numpy writes as bytes without its name: the one that is given, else
    the only one of two bytes, bfloat16."""
    if array.dtype.kind != "V" or array.dtype.isbuiltin == 2 or array.dtype.names:
        return array
    kind = as_dtype(dtype)
    if kind is None or kind.itemsize != array.dtype.itemsize:
        kind = as_dtype("bfloat16") if array.dtype.itemsize == 2 else None
    if kind is None:
        raise ValueError("numpy wrote it without its type; name that: --dtype float8_e4m3fn")
    return array.view(kind)


def _read_raw(path: Path, dtype: str) -> Array:
    kind = as_dtype(dtype)
    if kind is None:
        raise RecordingError(f"{dtype} is not a numeric type", where=str(path), hint="float32, float16, uint8, …")
    size = path.stat().st_size
    if not size or size % kind.itemsize:
        raise RecordingError(f"{size} bytes are not a multiple of {dtype}", where=str(path), hint="name its type")
    return np.fromfile(path, kind)


def _read_text(path: Path) -> Array:
    """Return numbers between blanks, commas or brackets, and nothing else."""
    if path.stat().st_size > _MOST_TEXT:
        raise RecordingError("is too long for text", where=str(path), hint="write .npy or .raw")
    words = re.split(r"[\s,;\[\]]+", path.read_text(encoding="utf-8").strip(" \n\t,;[]"))
    return np.array(words, np.float64).astype(np.float32)


def _read_safetensors(path: Path) -> Iterator[tuple[str, Array, tuple[int, ...]]]:
    """Yield the format: 8 bytes of the header's length, a JSON header, the bytes (huggingface.co/docs/safetensors)."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError("its header is longer than the file")
        header = json.loads(file.read(length))
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        kind, shape = as_dtype(_SAFE.get(entry["dtype"], "")), tuple(map(int, entry["shape"]))
        if kind is None:
            continue
        start, count = 8 + length + int(entry["data_offsets"][0]), math.prod(shape)
        if count:
            yield name, np.memmap(path, kind, "r", start, (count,)).reshape(shape), shape
        else:
            yield name, np.zeros(shape, kind), shape


def _read_torch(path: Path) -> Iterator[tuple[str, Array, tuple[int, ...]]]:
    """PyTorch's archive since 1.6: data.pkl names storages, which lie beside it as bytes."""
    with zipfile.ZipFile(path) as archive:
        [listing] = [name for name in archive.namelist() if name.endswith("data.pkl")]
        found = _Tensors(io.BytesIO(archive.read(listing)), archive, listing.removesuffix("data.pkl")).load()
    yield from _name_tensors(found, "")


def _name_tensors(value: Any, name: str) -> Iterator[tuple[str, Array, tuple[int, ...]]]:
    if isinstance(value, np.ndarray):
        yield name, value, tuple(value.shape)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _name_tensors(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            yield from _name_tensors(one, f"{name}.{place}" if name else str(place))


class _Tensors(pickle.Unpickler):
    """Builds numpy arrays; anything else that a pickle could call is refused."""

    def __init__(self, file: io.BytesIO, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(file)
        self._archive, self._folder = archive, folder

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name in {"_rebuild_tensor_v2", "_rebuild_tensor"}:
            return _rebuild_tensor
        if (module, name) == ("torch._utils", "_rebuild_tensor_v3"):
            return _rebuild_tensor_of_type
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda data, *_: data
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("torch.storage", "UntypedStorage"):
            return "uint8"
        if module == "torch" and name.startswith("float8_") and (kind := as_dtype(name)) is not None:
            return kind
        raise ValueError(f"it holds {module}.{name}, and only tensors are read; save them with torch.save(tensor)")

    def persistent_load(self, storage: Any) -> Array:
        _, kind, key, *_ = storage
        dtype = as_dtype(kind)
        if dtype is None:
            raise ValueError(f"it holds {kind}")
        return np.frombuffer(self._archive.read(f"{self._folder}data/{key}"), dtype)


def _rebuild_tensor_of_type(
    storage: Array, offset: int, size: tuple[int, ...], stride: tuple[int, ...], _grad: Any, _hooks: Any, kind: Any,
    *_: Any,
) -> Array:  # fmt: skip
    """Return numbers of a type of one byte, which has no storage of its own in torch."""
    return _rebuild_tensor(storage, offset, size, stride).view(kind)


def _rebuild_tensor(storage: Array, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Array:
    reach = offset + sum((one - 1) * step for one, step in zip(size, stride, strict=True)) + 1
    count = math.prod(size)
    if min([*size, *stride, offset], default=0) < 0 or (count and reach > storage.size):
        raise ValueError("a tensor reaches beyond its storage")
    if not count:
        return np.zeros(size, storage.dtype)
    steps = tuple(step * storage.itemsize for step in stride)
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(storage[offset:], size, steps))
