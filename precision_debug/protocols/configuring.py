"""What a model's file says beside its weights, which weights two of them do not share, and a model with others."""

from __future__ import annotations

import copy
import enum
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ..errors import ModelError, OutputError
from ..records import ModelFiles, SessionSpec

__all__ = [
    "ABSENT",
    "Absent",
    "Configurations",
    "Configurer",
    "FolderConfigurations",
    "OtherWeight",
    "Place",
    "StoredWeights",
]

Place = tuple[str, ...]
"""Where a value stands: the keys on the way to it."""


class Absent(enum.Enum):
    """That a configuration does not have a key, which is not the same as null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class Configurations(Protocol):
    """Reads and writes what models of one format say of how their operators compute."""

    @property
    def words(self) -> str:
        """Whose names the keys are: configurations in the same words can be held against each other."""

    def read(self, spec: SessionSpec) -> Mapping[str, Any]:
        """Return what a model says, without names and dates, which no operator reads; {} where it has none."""

    def exchange(self, spec: SessionSpec, values: Mapping[Place, Any], folder: Path, base: SessionSpec) -> ModelFiles:
        """Write the same model with other values, ``ABSENT`` where a key is to be left out.

        folder: an existing empty one. base: the model that has these values. Raises ModelError or OutputError."""


    @property
    def weights(self) -> StoredWeights | None:
        """What tells two models' weights apart as their files hold them; None where each operator tells its own."""


@dataclass(frozen=True, kw_only=True)
class OtherWeight:
    """A tensor that two files hold under one name, in one type and shape, with other numbers.

    at: of the first element that differs, with both of its values. same_as: the baseline's tensor whose numbers the
    target's all are; "" where there is none."""

    name: str
    at: tuple[int, ...]
    base: float
    target: float
    count: int
    elements: int
    same_as: str = ""


class StoredWeights(Protocol):
    """Reads and writes weights as the files of one format hold them, whatever an engine makes of them."""

    def list_other(self, spec: SessionSpec, base: SessionSpec, begin: str) -> Sequence[OtherWeight]:
        """Return what differs among the tensors whose names begin so. Raises ModelError."""

    def exchange(self, spec: SessionSpec, names: Sequence[str], folder: Path, base: SessionSpec) -> ModelFiles:
        """Write the same model with the tensors of these names as the other has them.

        folder: an existing empty one. Raises ModelError or OutputError."""


class Configurer(Protocol):
    """A backend whose models say in a configuration what their operators compute; by its capability."""

    @property
    def configurations(self) -> Configurations:
        """Of the models that it reads."""


class FolderConfigurations:
    """Of folders as transformers saves them, which several engines read. See ``Configurations``."""

    words = "transformers"

    @property
    def weights(self) -> StoredWeights:
        """See ``Configurations``."""
        return _FolderWeights()

    def read(self, spec: SessionSpec) -> Mapping[str, Any]:
        """See ``Configurations``: what config.json says."""
        try:
            found = json.loads((Path(spec.model.path) / _FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return {key: one for key, one in found.items() if key not in _READ_BY_NOBODY} if isinstance(found, dict) else {}

    def exchange(
        self, spec: SessionSpec, values: Mapping[Place, Any], folder: Path, base: SessionSpec  # noqa: ARG002
    ) -> ModelFiles:  # fmt: skip
        """See ``Configurations``: all files but config.json are links to the model's own."""
        source = Path(spec.model.path).resolve()
        try:
            found = json.loads((source / _FILE).read_text(encoding="utf-8"))
            others = [one for one in source.iterdir() if one.name != _FILE]
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(f"its {_FILE} cannot be read ({type(error).__name__})", where=spec.model.path) from error
        try:
            for one in others:
                (folder / one.name).symlink_to(one)
            (folder / _FILE).write_text(json.dumps(_with(found, values), indent=2), encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror or error})", where=str(folder)) from error
        return ModelFiles(model_dir=str(folder))


_FILE = "config.json"

_READ_BY_NOBODY = frozenset({
    "_name_or_path", "transformers_version", "torch_dtype", "dtype", "quantization_config", "compression_config",
})  # fmt: skip
"""Keys that say where a folder comes from, in which type it was trained (the run mode says in which it runs), and how
its weights are packed: with another value of that the weights could not be read."""


def _with(configuration: Any, values: Mapping[Place, Any]) -> Any:
    changed = copy.deepcopy(configuration)
    for (*way, last), value in values.items():
        inner = changed
        for key in way:
            inner = inner[key]
        if value is ABSENT:
            inner.pop(last, None)
        else:
            inner[last] = value
    return changed


class _FolderWeights:
    """Of safetensors (8 bytes of a head's length, a head in JSON, the numbers). See ``StoredWeights``."""

    def list_other(self, spec: SessionSpec, base: SessionSpec, begin: str) -> Sequence[OtherWeight]:
        mine, theirs = (_read_heads(Path(one.model.path)) for one in (base, spec))
        common = [name for name in mine if name in theirs and mine[name].is_like(theirs[name])]
        found = (_compare_stored(mine, theirs[name], name) for name in common if name.startswith(begin))
        return tuple(one for one in found if one is not None)

    def exchange(self, spec: SessionSpec, names: Sequence[str], folder: Path, base: SessionSpec) -> ModelFiles:
        mine, theirs = (_read_heads(Path(one.model.path)) for one in (base, spec))
        changed = {theirs[name].file.name for name in names}
        try:
            for one in Path(spec.model.path).resolve().iterdir():
                if one.name in changed:
                    shutil.copyfile(one, folder / one.name)
                else:
                    (folder / one.name).symlink_to(one)
            for name in names:
                there = theirs[name]
                with (folder / there.file.name).open("r+b") as opened:
                    opened.seek(there.start)
                    opened.write(mine[name].read().tobytes())
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror or error})", where=str(folder)) from error
        return ModelFiles(model_dir=str(folder))


_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """A tensor in a file of weights."""

    file: Path
    kind: str
    shape: tuple[int, ...]
    start: int

    def is_like(self, other: _Stored) -> bool:
        return (self.kind, self.shape) == (other.kind, other.shape)

    def read(self) -> Any:
        """Return its numbers as an array, which stay in the file until they are looked at."""
        import ml_dtypes
        import numpy as np

        kind = np.dtype(getattr(ml_dtypes, _FLOATS[self.kind], _FLOATS[self.kind]))
        return np.memmap(self.file, kind, "r", self.start, (math.prod(self.shape),))


def _read_heads(folder: Path) -> Mapping[str, _Stored]:
    """Return the floating-point tensors of a folder's files, by name. Raises ModelError."""
    try:
        return {name: one for file in sorted(folder.glob("*.safetensors")) for name, one in _iterate_stored(file)}
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ModelError(f"its weights cannot be read ({type(error).__name__})", where=str(folder)) from error


def _iterate_stored(file: Path) -> Iterator[tuple[str, _Stored]]:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        head = json.loads(opened.read(min(length, file.stat().st_size)))
    for name, entry in head.items():
        if name != "__metadata__" and entry["dtype"] in _FLOATS and (shape := tuple(map(int, entry["shape"]))):
            start = 8 + length + int(entry["data_offsets"][0])
            yield name, _Stored(file=file.resolve(), kind=entry["dtype"], shape=shape, start=start)


def _compare_stored(mine: Mapping[str, _Stored], there: _Stored, name: str) -> OtherWeight | None:
    import numpy as np

    here = mine[name]
    if here == there or not math.prod(here.shape):
        return None
    first, second = here.read(), there.read()
    apart = np.asarray(first != second)
    if not apart.any():
        return None
    at = int(np.argmax(apart))
    same = (
        key for key, one in mine.items() if key != name and one.is_like(here) and np.array_equal(one.read(), second)
    )
    return OtherWeight(
        name=name, at=tuple(int(one) for one in np.unravel_index(at, here.shape)), base=float(first[at]),
        target=float(second[at]), count=int(apart.sum()), elements=int(apart.size), same_as=next(same, ""),
    )  # fmt: skip
