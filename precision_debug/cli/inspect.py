"""precision_debug inspect: what TensorRT's engine-inspector files say.

One line a layer: its type, the precision that it really ran in and what that was read from, and what it produces.
FILES may be globs; several files are read as one engine.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from ..inspector import EngineLayer, diff_engines, fused_outputs, read_inspector, real_precision
from ..safety.visible import visible
from .parser import Parser, formatter, parse, program

__all__ = ["run"]

SUMMARY = "read TensorRT engine-inspector files: layers, real precision, fused outputs"


def run(arguments: Sequence[str]) -> int:
    """Print the layers, the fused outputs or a difference; 1 where --diff finds another fusion, else 0."""
    parser: argparse.ArgumentParser = Parser(prog=program("inspect"), formatter_class=formatter, description=__doc__)
    parser.add_argument("files", metavar="FILES", nargs="+", help="engine_info_*.json and the like")
    parser.add_argument("--fused_outputs", action="store_true", help="only the fused layers' output names, one a line")
    parser.add_argument("--diff", metavar="FILES", nargs="+", default=[], help="another engine: was the fusion kept?")
    parser.add_argument("--verbose", action="store_true", help="tracebacks")
    given = parse(parser, arguments)
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
