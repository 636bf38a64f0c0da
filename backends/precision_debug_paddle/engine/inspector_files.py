"""The layers of one build: the file that TensorRT's inspector left, and what they say of the precision.

Paddle 2.6 joins the cache folder and "engine_info_<hash>.json" without a separator. Its own folder ends in one
(``<model's folder>/_opt_cache/``); with a folder that the user named without one, the file lies beside that folder,
under a name that begins with the folder's.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from precision_debug.inspector import EngineLayer, find_real_precision, is_opaque, map_producers, strip_subgraph_suffix
from precision_debug.numbers.number_types import NUMBER_TYPES
from precision_debug.ownership import guard_output, is_ours
from precision_debug.reasons import NOTHING, Reason, ReasonOrText

from ..reasons import say

__all__ = [
    "InspectorFiles",
    "columns",
    "find_separate_norms",
    "list_kept",
    "note_other_precisions",
    "precision_note",
    "without_suffixes",
]  # fmt: skip

_NAME = re.compile(r"engine_info_\w*\.json$")
_MOVES = frozenset({"NoOp", "Shuffle", "Reformat"})
_NORM = re.compile(r"batchnorm_add_scale \(Output: ([^()]+)\)")
_OUTPUT = re.compile(r"\(Output: ([^()]+)\)")
_SUFFIX = re.compile(r"_subgraph_\d+")
_IDLE = frozenset({"NoOp", "Constant", "Shuffle", "Reformat"})


class InspectorFiles:
    """The inspector files that one build writes; what lay there before is none of them.

    folder: of this build alone. cache: the user's cache folder, "" where there is none. elsewhere: further folders in
    which a Paddle that behaves differently might leave them.
    """

    def __init__(self, folder: Path, cache: str, elsewhere: Sequence[Path]) -> None:
        self._folder, self._cache = folder, cache
        self._places = (folder, *((Path(cache),) if cache else ()), *elsewhere)
        self._before = {path: stamp for place in self._places for path, stamp in _iterate_files(place)}

    def written(self) -> tuple[Path, ...]:
        """In the order in which they were written, copied to the cache folder where there is one."""
        for place in self._places:
            new = {path: stamp for path, stamp in _iterate_files(place) if self._before.get(path) != stamp}
            if new:
                return tuple(self._kept(path) for path in sorted(new, key=lambda path: (new[path], path)))
        return ()

    def _kept(self, path: Path) -> Path:
        name = _NAME.search(path.name)
        if not self._cache or name is None or path.parent == Path(self._cache):
            return path
        place = Path(self._cache, name[0])
        if not is_ours(place):  # Paddle's own, or the user's
            return path
        with guard_output(place):
            return Path(shutil.copyfile(path, place))


def _iterate_files(folder: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Files in a folder, in its _opt_cache, and beside either under a name that begins with it; and their stamps."""
    inside = folder / "_opt_cache"
    places = [*folder.glob("*engine_info_*.json"), *inside.glob("*engine_info_*.json")]
    beside = folder.parent.glob(f"{_literal(folder.name)}engine_info_*.json") if folder.name else ()
    for path in (*places, *beside):
        about = path.stat()
        yield path, (about.st_mtime_ns, about.st_size)


def _literal(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def precision_note(layers: Sequence[EngineLayer], precision: str, mode: str, *, marked: bool) -> Reason:
    """Return what the layers really ran in, loud where none ran in what the mode asks for.

    precision: of the recipe ("float16"). marked: of the engine with marks.
    """
    which = say("marked") if marked else say("unmarked")
    busy = [layer for layer in layers if layer.layer_type not in _IDLE and not layer.is_reformat]
    counts = collections.Counter(find_real_precision(layer)[0] for layer in busy)
    silent = counts.pop("", 0)
    wanted = NUMBER_TYPES[precision].short
    detail: ReasonOrText = _list_counts(counts)
    if silent:
        detail = say("and_untold", kinds=detail, count=silent)
    if not counts:
        return say("no_layer_told", which=which) if busy else NOTHING
    if not counts[wanted] and precision != "float32" and any(is_opaque(layer) for layer in busy):
        return say("none_known", which=which, wanted=wanted, kinds=detail)
    if not counts[wanted] and precision != "float32":
        loud = say("marked_loud") if marked else say("unmarked_loud")
        return say("none_ran", which=loud, wanted=wanted, mode=mode, kinds=detail)
    if precision == "float32" and counts["TF32"]:
        return say("ran_in_tf32", which=which, count=counts["TF32"], kinds=detail)
    return say("ran_in", which=which, kinds=detail)


def _list_counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered if count)


def without_suffixes(layers: Sequence[EngineLayer]) -> tuple[EngineLayer, ...]:
    """Return the layers with Paddle's subgraph numbers taken out of their names, so that two builds can be compared."""
    return tuple(dataclasses.replace(layer, name=_SUFFIX.sub("", layer.name)) for layer in layers)


def find_separate_norms(layers: Sequence[EngineLayer]) -> frozenset[str]:
    """Batch norms that Paddle gave to TensorRT as such, and did not fold into weights of its own."""
    return frozenset(name for layer in layers for name in _NORM.findall(_SUFFIX.sub("", layer.name)))


def columns(layers: Sequence[EngineLayer], shipped: Sequence[EngineLayer] = ()) -> dict[str, dict[str, str]]:
    """Paddle's tensor name to the report's extra columns: the layer that computed it, in what, and by which kernel.

    A layer that only gives a matrix product its shape is named, with the precision and the kernel of the product.
    shipped: the layers of the engine without marks, where ``layers`` is one with marks.
    """
    found: dict[str, dict[str, str]] = {}
    made_by = map_producers(layers)
    there = _name_layers(shipped)
    for name, layer in made_by.items():
        plain = strip_subgraph_suffix(name)[0]
        source = _computes(layer, made_by)
        precision, read_from = find_real_precision(source)
        extra = {
            "Fused Layer": _SUFFIX.sub("", layer.name),
            "Real Precision": precision or "not reported",
            "Precision Read From": read_from or "neither a tactic nor a type is reported",
            "Tactic": source.tactic_name,
        }
        if plain in there:
            extra["Precision There"] = find_real_precision(there[plain])[0] or "not reported"
        found.setdefault(plain, {key: value for key, value in extra.items() if value})
    return found


def list_kept(layers: Sequence[EngineLayer], names: Sequence[str]) -> dict[str, str]:
    """Return tensors of the program to the precision that their layer ran in: of those names that a layer tells of.

    Paddle sets a layer's precision where ``disable_tensorrt_half_ops`` names its output or its type, and lets TensorRT
    prefer that to speed, which it need not follow (op_converter.h, SupportFP32MixPrecision).
    """
    there = {strip_subgraph_suffix(name)[0]: layer for name, layer in map_producers(layers).items()} | _name_layers(
        layers
    )
    return {name: find_real_precision(there[name])[0] for name in names if name in there}


def note_other_precisions(found: Mapping[str, Mapping[str, str]]) -> Reason:
    """Return a note on the tensors whose layer has another precision in the engine that ships; "" where there is
    none."""
    pairs = [(extra["Real Precision"], extra.get("Precision There", "not reported")) for extra in found.values()]
    count = sum(one != two for one, two in pairs if "not reported" not in (one, two))
    if not count:
        return NOTHING
    return say("other_precision", count=count)


def _name_layers(layers: Sequence[EngineLayer]) -> dict[str, EngineLayer]:
    """Paddle's tensor names in the names of layers, also of those that were fused away."""
    made_by = map_producers(layers)
    found: dict[str, EngineLayer] = {}
    for layer in layers:
        if not layer.is_reformat and not is_opaque(layer):
            for name in _OUTPUT.findall(_SUFFIX.sub("", layer.name)):
                found.setdefault(name, _computes(layer, made_by))
    return found


def _computes(layer: EngineLayer, made_by: Mapping[str, EngineLayer]) -> EngineLayer:
    """Return the layer whose values it moves, where it only moves values."""
    while not layer.tactic_name and layer.layer_type in _MOVES and layer.inputs:
        before = made_by.get(layer.inputs[0].name)
        if before is None or before is layer:
            break
        layer = before
    return layer
