"""The layers of one build: the file that TensorRT's inspector left, and what they say of the precision.

Paddle 2.6 joins the cache folder and "engine_info_<hash>.json" without a separator. Its own folder ends in one
(``<model's folder>/_opt_cache/``); with a folder that the user named without one, the file lies beside that folder,
under a name that begins with the folder's.
"""

from __future__ import annotations

import collections
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from precision_debug.inspector import EngineLayer, is_opaque, real_precision

__all__ = ["InspectorFiles", "precision_note"]

_NAME = re.compile(r"engine_info_\w*\.json$")
_WANTED = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16", "int8": "INT8"}
_IDLE = frozenset({"NoOp", "Constant", "Shuffle", "Reformat"})


class InspectorFiles:
    """The inspector files that one build writes; what lay there before is none of them.

    folder: of this build alone. cache: the user's cache folder, "" where there is none. elsewhere: further folders in
    which a Paddle that behaves differently might leave them.
    """

    def __init__(self, folder: Path, cache: str, elsewhere: Sequence[Path]) -> None:
        self._folder, self._cache = folder, cache
        self._places = (folder, *((Path(cache),) if cache else ()), *elsewhere)
        self._before = {path: stamp for place in self._places for path, stamp in _found(place)}

    def written(self) -> tuple[Path, ...]:
        """In the order in which they were written, copied to the cache folder where there is one."""
        for place in self._places:
            new = {path: stamp for path, stamp in _found(place) if self._before.get(path) != stamp}
            if new:
                return tuple(self._kept(path) for path in sorted(new, key=lambda path: (new[path], path)))
        return ()

    def _kept(self, path: Path) -> Path:
        name = _NAME.search(path.name)
        if not self._cache or name is None or path.parent == Path(self._cache):
            return path
        return Path(shutil.copyfile(path, Path(self._cache, name[0])))


def _found(folder: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Files in a folder, in its _opt_cache, and beside either under a name that begins with it; and their stamps."""
    inside = folder / "_opt_cache"
    places = [*folder.glob("*engine_info_*.json"), *inside.glob("*engine_info_*.json")]
    beside = folder.parent.glob(f"{_literal(folder.name)}engine_info_*.json") if folder.name else ()
    for path in (*places, *beside):
        about = path.stat()
        yield path, (about.st_mtime_ns, about.st_size)


def _literal(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def precision_note(layers: Sequence[EngineLayer], precision: str, mode: str, *, which: str) -> str:
    """What the layers really ran in, loud where none ran in what the mode asks for.

    precision: of the recipe ("float16"). which: "marked" or "unmarked".
    """
    busy = [layer for layer in layers if layer.layer_type not in _IDLE and not layer.is_reformat]
    counts = collections.Counter(real_precision(layer)[0] for layer in busy)
    silent = counts.pop("", 0)
    wanted = _WANTED[precision]
    told = _listed(counts)
    unsaid = f"; of {silent} more TensorRT does not tell" if silent else ""
    if not counts:
        return f"TensorRT tells of no layer of the {which} engine in which precision it ran." if busy else ""
    if not counts[wanted] and precision != "float32" and any(is_opaque(layer) for layer in busy):
        return (
            f"No layer of the {which} engine is known to have run in {wanted}: {told}{unsaid} (regions that TensorRT "
            "compiles as a whole)."
        )
    if not counts[wanted] and precision != "float32":
        return (
            f"NO LAYER OF THE {which.upper()} ENGINE RAN IN {wanted}, which {mode} asks for: TensorRT found other "
            f"kernels faster ({told}{unsaid}). The differences are not those of {wanted}."
        )
    if precision == "float32" and counts["TF32"]:
        return (
            f"Of the {which} engine's layers, {counts['TF32']} RAN IN TF32 (10 bits of mantissa), not in FP32: "
            f"{told}{unsaid}."
        )
    return f"The {which} engine's layers ran in: {told}{unsaid}."


def _listed(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered if count)
