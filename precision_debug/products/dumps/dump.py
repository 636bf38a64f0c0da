"""A folder of tensors that another tool left behind: which files, under which names, in real numbers.

Any folder goes: a file a tensor (see ``tensor_file``), named after it. Of tools whose folders say more, what they say
is read too (``dump_layouts``). A side file tensors.json says what files alone do not: {name: {"shape": [1, 3, 4, 4],
"dtype": "uint8", "scale": 0.02, "zero_point": 128, "axis": 1, "op_type": "Conv"}}, every key optional, the names with
or without their ending.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...codec import parse_json
from ...errors import RecordingError
from ...feeds.dtypes import as_dtype, from_plain
from ...recording.format import TENSORS, is_outputs, is_recording
from .dump_layouts import LAYOUTS, Layout
from .tensor_file import ENDINGS, read_tensors

__all__ = ["SIDE", "Dump", "DumpedTensor", "is_dump", "read_dump"]

Array = np.ndarray[Any, Any]

SIDE = "tensors.json"
_FILES = (".npz", ".safetensors", ".pt", ".pth", ".json")


@dataclass(frozen=True, kw_only=True)
class DumpedTensor:
    """A tensor of another tool's dump.

    value: in real numbers, flat where nobody said its shape. held: the type that the tool held it in. parts: what the
    further ranks of a parallel run hold under this name; ranks: of value and of these, where that is said."""

    name: str
    value: Array
    shape: tuple[int, ...] | None
    file: str
    held: str = ""
    op_type: str = ""
    parts: tuple[Array, ...] = ()
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Dump:
    """layout: the tool's, "" of any folder. skipped: file to why nothing of it was read."""

    path: str
    tensors: tuple[DumpedTensor, ...]
    layout: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)


def is_dump(path: str) -> bool:
    """Return whether a baseline of this name is such a folder, or a file of several tensors; no recording of ours."""
    place = Path(path)
    if is_recording(path):
        return False
    if place.is_dir():
        if is_outputs(path) or (place / TENSORS).is_dir():  # a partial recording of ours
            return False
        return any(layout.is_it(place) for layout in LAYOUTS) or next(_list_files(place), None) is not None
    suffix = place.suffix.lower()
    return place.is_file() and (
        (suffix in _FILES and suffix != ".json") or any(layout.is_it(place) for layout in LAYOUTS)
    )


def read_dump(path: str, dtype: str = "float32") -> Dump:
    """dtype: of raw bytes whose type nobody says. Raises RecordingError."""
    place = Path(path)
    if not place.exists():
        raise RecordingError("there is no such folder", where=path, hint="name a folder of tensors")
    layout = next((one for one in LAYOUTS if one.is_it(place)), None)
    sidecar = _read_side_file(place)
    found: dict[str, DumpedTensor] = {}
    ranks: dict[str, dict[int, Array]] = {}
    skipped: dict[str, str] = {}
    listed = layout.files(place) if layout is not None else ((file, "", {}) for file in _list_files(place))
    for file, called, said in listed:
        relative = str(file.relative_to(place)) if place.is_dir() else file.name
        try:
            own = {**said, **_find_side_entry(sidecar, relative)}
            for inside, value, shape in _read(layout, file, str(own.get("dtype", dtype))):
                whole = "/".join(filter(None, (called or _name_of(relative, place, file), inside)))
                rank, name = _rank_of(whole)
                about = {**own, **_find_side_entry(sidecar, name), **_find_side_entry(sidecar, inside)}
                one = _make_tensor(name, value, shape, relative, about)
                if one.name in found and rank in ranks[one.name]:
                    skipped[f"{relative} {inside}".strip()] = f"a second tensor is called {one.name}"
                    continue
                found.setdefault(one.name, one)
                ranks.setdefault(one.name, {})[rank] = one.value
        except RecordingError as error:
            skipped[relative] = error.what
    if not found:
        why = next(iter(skipped.items()), ("", ""))
        raise RecordingError(
            "holds no tensors" if not skipped else f"holds no tensor that can be read: {why[0]}: {why[1]}", where=path,
            hint=f"files may end in {' '.join(ENDINGS)}",
        )  # fmt: skip
    return Dump(
        path=path, tensors=tuple(_join_ranks(one, ranks[one.name]) for one in found.values()),
        layout="" if layout is None else layout.name, skipped=skipped,
    )


def _read(layout: Layout | None, file: Path, dtype: str) -> Iterator[tuple[str, Array, tuple[int, ...] | None]]:
    if layout is not None and layout.read is not None:
        return layout.read(file)
    return read_tensors(file, dtype)


def _list_files(folder: Path) -> Iterator[Path]:
    """Everything in it that may be a tensor, in the order of names."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in ENDINGS and path.is_file() and not path.is_symlink():
            yield path


def _name_of(relative: str, place: Path, file: Path) -> str:
    """Return a file's path without its ending; nothing of a file that is the dump itself."""
    return "" if place == file else relative[: -len(file.suffix)]


def _rank_of(name: str) -> tuple[int, str]:
    """Return the rank that a path names, -1 for none, and the name without it: rank_1/x, r1/rank1/x."""
    parts = name.split("/")
    ranks = [part for part in parts[:-1] if re.fullmatch(r"rank[_-]?\d+", part)]
    number = int(re.sub(r"\D", "", ranks[0])) if ranks else -1
    return number, "/".join(part for part in parts if part not in ranks)


def _join_ranks(one: DumpedTensor, values: Mapping[int, Array]) -> DumpedTensor:
    """Return what the ranks hold of it, the first one first."""
    ranks = sorted(values)
    if ranks == [-1]:
        return one
    value, *parts = (values[rank] for rank in ranks)
    shape = None if one.shape is None else tuple(value.shape)
    return dataclasses.replace(one, value=value, shape=shape, parts=tuple(parts), ranks=tuple(ranks))


def _read_side_file(place: Path) -> Mapping[str, Any]:
    path = (place if place.is_dir() else place.parent) / SIDE
    if not path.is_file():
        return {}
    try:
        parsed = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RecordingError(f"cannot be read: {error}", where=str(path)) from error
    if not isinstance(parsed, dict) or not all(isinstance(one, dict) for one in parsed.values()):
        raise RecordingError('is no {name: {"shape": …}}', where=str(path), hint="one object a tensor")
    return parsed


def _find_side_entry(sidecar: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return what the side file says of a name, with or without its ending or its folders."""
    plain = name.rpartition("/")[2]
    for one in (name, name.rpartition(".")[0], plain, plain.rpartition(".")[0]):
        if one and one in sidecar:
            found: Mapping[str, Any] = sidecar[one]
            return found
    return {}


def _make_tensor(
    name: str, value: Array, shape: tuple[int, ...] | None, file: str, about: Mapping[str, Any]
) -> DumpedTensor:  # fmt: skip
    kind = as_dtype(str(about.get("dtype", "")))
    if kind is not None and kind.isbuiltin == 2 and value.dtype.kind == "u" and value.dtype.itemsize == kind.itemsize:
        value = from_plain(value, str(about["dtype"]))  # bits that .npy has no type for
    held = str(value.dtype.name)
    if value.dtype.isbuiltin == 2:  # of ml_dtypes, which numpy's kinds do not tell: float32 and int8 hold them all
        value = value.astype(np.float32 if "float" in held else np.int8 if held.startswith("int") else np.uint8)
    try:
        if about.get("shape") is not None:
            shape = tuple(int(size) for size in about["shape"])
            value = value.reshape(shape)
        if about.get("scale") is not None:
            value = _dequantise(value, about)
    except (TypeError, ValueError) as error:
        raise RecordingError(f"{name}: {error}", where=file) from error
    called = str(about.get("name") or name)
    return DumpedTensor(
        name=called, value=value, shape=shape, file=file, held=held, op_type=str(about.get("op_type", ""))
    )  # fmt: skip


def _dequantise(value: Array, about: Mapping[str, Any]) -> Array:
    """(code - zero point) * scale; scales of an axis need a shape."""
    scale, zero = np.asarray(about["scale"], np.float64), np.asarray(about.get("zero_point", 0), np.float64)
    if scale.size > 1:
        wide = [1] * value.ndim
        wide[int(about.get("axis", 0))] = scale.size
        scale, zero = scale.reshape(wide), np.broadcast_to(zero.reshape(-1), scale.size).reshape(wide)
    return np.asarray((value.astype(np.float64) - zero) * scale, np.float32)
