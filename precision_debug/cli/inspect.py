"""precision_debug inspect: what TensorRT's engine-inspector files say, or what a model or an engine holds.

One line a layer: its type, the precision that it really ran in and what that was read from, and what it produces.
FILES may be globs; several files are read as one engine. `inspect model M` tells a model's inputs, outputs, operators
and weights (.onnx .ort .pdmodel .json .xml .pt2 .pt), or an engine's bindings, layers, real precision and tactics
(.engine .plan); --show layers attributes weights tells each of them. `inspect data FILE` tells what --inputs or
--load_outputs would read from a .npz, .npy or .json file: names, types, shapes and ranges of each sample.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import registry
from ..errors import UsageError
from ..inspector import EngineLayer, diff_engines, fused_outputs, read_inspector, real_precision
from ..numbers import describe
from ..numbers.arrays import as_array
from ..onnx.description import PARTS, described
from ..protocols import Describer
from ..records import InputMeta
from ..safety.visible import visible
from .description import lines_of
from .parser import Parser, formatter, parse, program

__all__ = ["run"]

SUMMARY = "tell what a model, an engine, or TensorRT's engine-inspector files hold (layers, real precision, tactics)"


def run(arguments: Sequence[str]) -> int:
    """Print the layers, the fused outputs or a difference; 1 where --diff finds another fusion, else 0."""
    parser: argparse.ArgumentParser = Parser(prog=program("inspect"), formatter_class=formatter, description=__doc__)
    parser.add_argument("files", metavar="FILES", nargs="+", help="engine_info_*.json and the like")
    parser.add_argument("--fused_outputs", action="store_true", help="only the fused layers' output names, one a line")
    parser.add_argument("--diff", metavar="FILES", nargs="+", default=[], help="another engine: was the fusion kept?")
    parser.add_argument("--verbose", action="store_true", help="tracebacks")
    parser.add_argument("--show", nargs="+", choices=PARTS, default=[], help="of a model or an engine, each of these")
    given = parse(parser, arguments)
    if given.files[0] == "data" and len(given.files) > 1:
        for name in given.files[1:]:
            sys.stdout.writelines(f"{visible(line)}\n" for line in _data(name))
        return 0
    files = given.files[1:] if given.files[0] == "model" and len(given.files) > 1 else given.files
    models = [name for name in files if _is_model(name)]
    if models or files is not given.files:
        return _models(files, given)
    if given.show:
        raise UsageError("is for models and engines", where="--show", hint="leave it out")
    layers = read_inspector(*given.files)
    if given.diff:
        difference = diff_engines(layers, read_inspector(*given.diff))
        sys.stdout.write(visible(difference.summary, keep="\n") + "\n")
        return 0 if difference.fusion_kept else 1
    if given.fused_outputs:
        sys.stdout.writelines(f"{visible(name)}\n" for name in fused_outputs(layers)[0])
        return 0
    sys.stdout.writelines(f"{visible(line)}\n" for line in _lines(layers))
    return 0


def _data(name: str) -> Iterator[str]:
    """One line an array. Raises InputError."""
    from ..feeds.load import load_sets
    from ..feeds.npz import load_npz
    from ..feeds.polygraphy_json import holds_results, read_results

    if name.lower().endswith(".json") and holds_results(Path(name)):
        for runner, iterations in read_results(Path(name)).items():
            for number, iteration in enumerate(iterations):
                yield f"{runner}, iteration {number}:"
                yield from map(_array, iteration.outputs.items())
        return
    only = [InputMeta(name="(only input)", dtype="", shape=None)]
    sets = load_npz(Path(name)) if name.lower().endswith(".npz") else load_sets(name, only)
    for number, one in enumerate(sets):
        yield f"sample {number}:"
        yield from map(_array, one.items())


def _array(item: tuple[str, Any]) -> str:
    name, value = item
    if value is None or isinstance(value, (list, tuple, dict)):
        return f"  {name}  {type(value).__name__}"
    found = describe(as_array(value, name=name))
    span = "" if found.min is None else f"  {found.min:.6g} to {found.max:.6g}, mean {found.mean or 0.0:.6g}"
    broken = "".join(f", {count} {what}" for count, what in ((found.nan, "NaN"), (found.inf, "Inf")) if count)
    return f"  {name}  {found.dtype} {list(found.shape)}{span}{broken}"


def _models(files: Sequence[str], given: argparse.Namespace) -> int:
    for name in files:
        if not _is_model(name) and _describer(name) is None:
            known = " ".join(sorted({".onnx", *(end for one in _describers() for end in one.described)}))
            raise UsageError("is no model or engine that is read here", where=name, hint=f"known: {known}")
    if given.diff or given.fused_outputs:
        raise UsageError("--diff and --fused_outputs read engine-inspector files", hint="leave them out")
    for name in files:
        describer = _describer(name)
        lines = (
            described(name, given.show) if describer is None else lines_of(name, describer.describe(name), given.show)
        )
        sys.stdout.writelines(f"{visible(line)}\n" for line in lines)
    return 0


def _is_model(name: str) -> bool:
    """By its ending; what may be an inspector's file too (.json) is a model where the user says so."""
    return name.lower().endswith(".onnx") or (_describer(name) is not None and not name.lower().endswith(".json"))


def _describers() -> list[Describer]:
    found = (backend.capabilities.describer for backend in registry.backends())
    return [one for one in found if one is not None]


def _describer(name: str) -> Describer | None:
    ending = Path(name).suffix.lower()
    return next((one for one in _describers() if ending in one.described), None)


def _lines(layers: Sequence[EngineLayer]) -> Iterator[str]:
    precisions = [real_precision(layer) for layer in layers]
    counts = Counter(precision or "unknown" for precision, _ in precisions)
    yield f"{len(layers)} layers; real precision: " + ", ".join(
        f"{count} {name}" for name, count in counts.most_common()
    )
    for layer, (precision, read_from) in zip(layers, precisions, strict=True):
        made = ", ".join(tensor.name for tensor in layer.outputs)
        source = f" (from {read_from})" if read_from else ""
        yield f"{layer.layer_type:18s} {precision or '?':5s}{source}  {layer.name} -> {made}"
        if layer.tactic_name:
            yield f"{'':24s} {layer.tactic_name}"
