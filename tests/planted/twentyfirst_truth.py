"""What is true of the twenty-first batch's ONNX cases, without the tool: ``python tests/planted/twentyfirst_truth.py
[WORD …]``, in stock ONNX Runtime without optimisation.

Two files: how far the output is off; the first tensors that differ, and what each as the baseline has it leaves; each
constant and operator that differs, what is left with it alone as the baseline has it, and with all the others so.
One file in a narrow type: what is left with each operator alone in FP32 (simulated node by node), or out of the
quantisation.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted import twentyfirst_narrow, twentyfirst_onnx
from planted.fourteenth_truth import _by_nncf, _each, _lite, _quantised
from planted.onnx_faults import Array
from planted.twelfth.case import Thread
from planted.twelfth.measure import in_half, openvino, stock


def rel(got: Sequence[Any], want: Sequence[Any]) -> float:
    """The worst output's relative L2; inf where it is not finite."""
    worst = 0.0
    for one, other in zip(got, want, strict=True):
        g, w = np.asarray(one, np.float64), np.asarray(other, np.float64)
        if g.shape != w.shape or not np.isfinite(g).all():
            return float("inf")
        worst = max(worst, float(np.linalg.norm(g - w) / max(np.linalg.norm(w), 1e-30)))
    return worst


def _undone(target: Any, base: Any, constants: Sequence[str], nodes: Sequence[str]) -> Any:
    """The target with these constants, and these operators (by what they make), as the baseline has them."""
    made = onnx.ModelProto()
    made.CopyFrom(target)
    held = {one.name: one for one in made.graph.initializer}
    for one in base.graph.initializer:
        if one.name in constants:
            kind = numpy_helper.to_array(held[one.name]).dtype
            held[one.name].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one).astype(kind), one.name))
        if one.name not in held:
            made.graph.initializer.append(one)
    theirs = {one.output[0]: one for one in base.graph.node}
    for one in made.graph.node:
        if one.output[0] in nodes:
            one.CopyFrom(theirs[one.output[0]])
    return made


def _ran(model: Any, feeds: Mapping[str, Array]) -> Any:
    try:
        return stock(model.SerializeToString(), feeds)
    except Exception as error:
        return [np.array(np.nan), str(error)[:80]]


def _cut(model: Any, name: str, value: Array, feeds: Mapping[str, Array]) -> Any:
    """The model with one tensor given."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for node in made.graph.node:
        for at, one in enumerate(node.output):
            if one == name:
                node.output[at] = f"{name}_unused"
    for one in made.graph.output:
        if one.name == name:
            return [value]
    made.graph.initializer.append(numpy_helper.from_array(value, name))
    return _ran(made, feeds)


def two_files(path: Path, base: Path, feeds: Mapping[str, Array]) -> list[str]:
    target, first = onnx.load(path), onnx.load(base)
    got, want = _each(path, feeds), _each(base, feeds)
    outputs = [one.name for one in first.graph.output]
    true, told = [want[one] for one in outputs], []
    told.append(f"output off by {rel([got[one] for one in outputs], true):.4g}")
    differ = {name for name in got if name in want and rel([got[name]], [want[name]]) > 1e-6}
    inside: set[str] = set()  # what comes behind a tensor that differs
    for node in target.graph.node:
        behind = any(one in differ or one in inside for one in node.input)
        for name in node.output:
            if behind:
                inside.add(name)
            elif name in differ:
                value = np.asarray(want[name]).astype(np.asarray(got[name]).dtype)
                left = rel(_cut(target, name, value, feeds), true)
                told.append(f"first {name} {rel([got[name]], [want[name]]):.4g} ({left:.3g} left)")
    only = [name for name in got if name not in want], [name for name in want if name not in got]
    told.append(f"only in the target {only[0]}, only in the baseline {only[1]}" if only[0] or only[1] else "")
    known = {one.name: numpy_helper.to_array(one) for one in first.graph.initializer}
    own = {one.name: numpy_helper.to_array(one) for one in target.graph.initializer}
    constants = [name for name, value in own.items() if name in known
                 and not np.array_equal(value, known[name].astype(value.dtype))]  # fmt: skip
    theirs = {one.output[0]: one for one in first.graph.node}
    nodes = [one.output[0] for one in target.graph.node if one.output[0] in theirs
             and one.SerializeToString() != theirs[one.output[0]].SerializeToString()]  # fmt: skip
    for name in (*constants, *nodes):
        alone = rel(_ran(_undone(target, first, [name] if name in constants else [], [name] if name in nodes else []),
                         feeds), true)  # fmt: skip
        others = rel(_ran(_undone(target, first, [one for one in constants if one != name],
                                  [one for one in nodes if one != name]), feeds), true)  # fmt: skip
        kind = "constant" if name in constants else "operator"
        told.append(f"{kind} {name} undone {alone:.3g} left; all but it undone {others:.3g} left")
    return [one for one in told if one]


def measure(one: Thread, folder: Path) -> list[str]:
    import ml_dtypes

    path, base, feeds = one.make(folder)
    path, feeds = Path(path), feeds or {}
    if path.suffix == ".tflite":
        return [f"off by {rel(_lite(path, feeds), _lite(Path(str(base)), feeds)):.4g}"]
    if one.kind == "dump":
        return two_files(path, folder / "board.onnx", feeds)
    if path.suffix == ".xml":
        want = stock(Path(str(base)), feeds)
        return [f"IR off by {rel(openvino(path, feeds), want):.4g}; "
                f"as ONNX in OpenVINO {rel(openvino(Path(str(base)), feeds), want):.4g}"]  # fmt: skip
    if base is not None:
        told = two_files(path, Path(base), feeds)
        if one.mode.startswith("ov"):
            told.append(f"OpenVINO off by {rel(openvino(path, feeds), stock(Path(base), feeds)):.4g}")
        return told
    want, model = stock(path, feeds), onnx.load(path)
    made = [node.output[0] for node in model.graph.node]
    if one.mode in ("ort_fp16_sim", "ort_bf16_sim"):
        kind = np.float16 if one.mode == "ort_fp16_sim" else ml_dtypes.bfloat16
        told = [f"off by {rel(in_half(path, feeds, (), kind), want):.4g}"]
        alone = {name: rel(in_half(path, feeds, [name], kind), want) for name in made}
        told.append("alone in FP32: " + ", ".join(f"{name} {left:.3g}" for name, left in alone.items()))
        told.append(f"who and extra in FP32: {rel(in_half(path, feeds, [*one.who, *one.extra], kind), want):.3g}")
        sizes = {name: float(np.abs(value).max()) for name, value in _each(path, feeds).items() if value.size}
        return [*told, "largest: " + ", ".join(f"{name} {size:.3g}" for name, size in sizes.items())]
    if one.mode in ("ort_int8", "ort_int8_dynamic", "ort_int4"):
        told = [f"off by {rel(_quantised(one, path, feeds, (), True), want):.4g}"]
        first = _quantised(one, path, feeds, (), True)[0]
        parts = [f"{rel([a], [b]):.2g}" for a, b in zip(np.moveaxis(first, -1, 0), np.moveaxis(want[0], -1, 0),
                                                       strict=True)][:16]  # fmt: skip
        left = {name: rel(_quantised(one, path, feeds, [name], True), want) for name in made}
        return [*told, "columns " + " ".join(parts),
                "alone left out: " + ", ".join(f"{n} {v:.3g}" for n, v in left.items())]  # fmt: skip
    if one.mode == "ov_bf16":
        import openvino as ov

        compiled = ov.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})
        found = compiled(dict(feeds))
        return [f"off by {rel([found[n] for n in range(len(compiled.outputs))], want):.4g}"]
    if one.mode == "ov_int8":
        return [f"off by {rel(_by_nncf(path, feeds), want):.4g}"]
    return []


def main() -> int:
    words = sys.argv[1:]
    for one in (*twentyfirst_onnx.CASES, *twentyfirst_narrow.CASES):
        if not words or any(word in one.name for word in words):
            with tempfile.TemporaryDirectory() as name:
                try:
                    told = measure(one, Path(name))
                except Exception as error:
                    told = [f"{type(error).__name__}: {error}"[:400]]
            print(f"{one.name} ({one.mode}) who {' '.join(one.who) or '-'}", *told, sep="\n    ", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
