"""The typed ONNX that a strongly typed TensorRT is built from: ours beside that of NVIDIA's ModelOpt AutoCast.

    python tests/benchmarks/typed_table.py MODELS [--autocast PYTHON] [--type FP16|BF16] [--only TAG…] [--keep FOLDER]

MODELS: a folder with list.txt (a line a model: tag, model, inputs), the models and their inputs. PYTHON: an
interpreter that has nvidia-modelopt[onnx]. Needs TensorRT for RTX's wheels, and no card. Prints a markdown table, a row
a model and a way:

  loads    TensorRT for RTX's parser takes the file in a strongly typed network
  builds   an engine of it is built ahead of time for compute capability 8.9
  rel L2   of the worst output against the model as it is, both in ONNX Runtime on the CPU without optimisations; where
           it has no kernel of FP16, it computes in FP32 and rounds. Outputs of whole numbers: the share that differs
  in FP32  operators that compute in FP32 of those that did in the model; casts and shape arithmetic are none

Ways: the model as it is; "ours", what rtx_fp16 is built from without further options; AutoCast with the same inputs
(random ones where it cannot read these); and, where AutoCast's error is the smaller one, "ours, searched": with the
operators in FP32 that `search --run_mode ort_fp16_sim --limit ERROR` finds, the limit being AutoCast's error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "backends")]

from precision_debug_tensorrt.engine.messages import Messages, make_logger  # noqa: E402
from precision_debug_tensorrt.engine.options import read_options  # noqa: E402
from precision_debug_tensorrt.engine.versions import RTX, load_api  # noqa: E402
from precision_debug_tensorrt.make import build_for_chip, make_typed_source  # noqa: E402
from precision_debug_tensorrt.model import OnnxModel, read_source  # noqa: E402
from precision_debug_tensorrt.modes import recipe  # noqa: E402

from precision_debug.errors import PrecisionDebugError  # noqa: E402
from precision_debug.records import ModelFiles  # noqa: E402

CHIP = "8.9"
_SAME = 1.02
"""Times an error up to which another one is the same."""

_SILENT = {"Cast", "CastLike", "Constant", "ConstantOfShape", "Shape", "Size", "Identity"}
_FLOAT = onnx.TensorProto.FLOAT


@dataclass(frozen=True, kw_only=True)
class Found:
    """One row. why: what failed first."""

    tag: str
    way: str
    loads: str = "-"
    builds: str = "-"
    error: float | None = None
    kept: int | None = None
    of: int = 0
    why: str = ""


def source_of(path: Path) -> OnnxModel:
    source = read_source(ModelFiles(model_file=str(path)))
    assert isinstance(source, OnnxModel)
    return source


def loads(path: Path) -> str:
    """What TensorRT for RTX's parser says of a file; "" where it takes it."""
    api, messages = load_api(RTX), Messages()
    logger = make_logger(api.trt, messages)
    builder = api.trt.Builder(logger)
    network = builder.create_network(api.creation_flags(strong=True))
    parser = api.trt.OnnxParser(network, logger)
    if parser.parse_from_file(str(path)):
        return ""
    return str(parser.get_error(0).desc())[:160] if parser.num_errors else "refused"


def builds(path: Path, feeds: Mapping[str, Any]) -> str:
    """Why there is no engine of a file as it is; "" where there is."""
    api, messages = load_api(RTX), Messages()
    logger = make_logger(api.trt, messages)
    try:
        options = read_options({"side": "target"})
        build_for_chip(api, logger, messages, source_of(path), recipe("rtx_tf32"), options, [feeds], chip=CHIP)
    except PrecisionDebugError as error:
        return " ".join(str(error).split())[:160]
    return ""


def rounding(graph: Any, kinds: Mapping[str, int]) -> None:
    """Two Identities behind every operator that gives FP16, in every graph: ONNX Runtime, which has few such kernels on
    a CPU, leaves out the casts between operators that it computes in FP32, a single Identity among them, and with the
    casts the rounding."""
    nodes = []
    for node in list(graph.node):
        for one in node.attribute:
            if one.type == onnx.AttributeProto.GRAPH:
                rounding(one.g, kinds)
        nodes.append(node)
        for place, name in enumerate(node.output):
            if kinds.get(name) == onnx.TensorProto.FLOAT16:
                node.output[place] = f"{name}!exact"
                steps = [f"{name}!exact", f"{name}!half", name]
                nodes += [onnx.helper.make_node("Identity", [a], [b], name=f"round:{b}") for a, b in pairwise(steps)]
    del graph.node[:]
    graph.node.extend(nodes)


def types_of(graph: Any) -> dict[str, int]:
    """Of every tensor of a graph whose types were inferred, and of its bodies."""
    found = {one.name: one.type.tensor_type.elem_type for one in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        for one in node.attribute:
            if one.type == onnx.AttributeProto.GRAPH:
                found |= types_of(one.g)
    return found


def run(path: Path, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    import onnxruntime as ort

    proto = onnx.load(str(path))
    rounding(proto.graph, types_of(onnx.shape_inference.infer_shapes(proto).graph))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    kinds = {one.name: one.type for one in session.get_inputs()}
    given = {name: np.float16(value) if kinds[name] == "tensor(float16)" else value for name, value in feeds.items()
             if name in kinds}  # fmt: skip
    return [np.asarray(one) for one in session.run(None, given)]


def apart(base: Sequence[np.ndarray], target: Sequence[np.ndarray]) -> float:
    """Relative L2 of the worst output; infinite where a NaN or Inf is of one side alone."""
    worst = 0.0
    for one, other in zip(base, target, strict=True):
        if one.dtype.kind != "f":
            worst = max(worst, float(np.mean(one != other)) if one.size else 0.0)
            continue
        a, b = one.astype(np.float64), other.astype(np.float64)
        if (np.isfinite(a) != np.isfinite(b)).any():
            return float("inf")
        there = np.isfinite(a)
        length = float(np.linalg.norm(a[there]))
        worst = max(worst, float(np.linalg.norm(a[there] - b[there])) / (length or 1.0))
    return worst


def in_fp32(path: Path) -> int:
    """Operators of all graphs that produce or, where they produce no floats, read FP32."""
    inferred = onnx.shape_inference.infer_shapes(onnx.load(str(path)))
    return _in_fp32(inferred.graph, {})


def _in_fp32(graph: Any, outer: Mapping[str, int]) -> int:
    kinds = {
        **outer,
        **{one.name: one.type.tensor_type.elem_type for one in (*graph.input, *graph.value_info, *graph.output)},
        **{one.name: one.data_type for one in graph.initializer},
        **{node.output[0]: a.t.data_type for node in graph.node for a in node.attribute if node.op_type == "Constant"},
    }
    found = 0
    for node in graph.node:
        bodies = [one.g for one in node.attribute if one.type == onnx.AttributeProto.GRAPH]
        found += sum(_in_fp32(body, kinds) for body in bodies)
        if node.op_type in _SILENT or bodies:
            continue
        made = [kinds.get(name, 0) for name in node.output if name]
        floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
        read = [kinds.get(name, 0) for name in node.input if name]
        found += _FLOAT in (made if floats & set(made) else read[:1])
    return found


def ours(path: Path, feeds: Mapping[str, Any], kind: str, folder: Path, options: Mapping[str, Any]) -> OnnxModel:
    api, messages = load_api(RTX), Messages()
    logger = make_logger(api.trt, messages)
    chosen = recipe(f"rtx_{kind.lower()}")
    given = read_options({"side": "target", **options})
    return make_typed_source(api, logger, messages, source_of(path), chosen, given, [feeds], folder)[0]


def autocast(python: str, path: Path, inputs: Path, kind: str, to: Path) -> str:
    """Write AutoCast's model; says why it could not. Where it fails on the inputs, it gets random ones of its own."""
    why = ""
    for more in (["--calibration_data", str(inputs)], []):
        done = subprocess.run(
            [python, "-m", "modelopt.onnx.autocast", "--onnx_path", str(path), "--output_path", str(to),
             "--low_precision_type", kind.lower(), "--keep_io_types", *more],
            capture_output=True, text=True, check=False, cwd=to.parent,
        )  # fmt: skip
        if done.returncode == 0:
            return ""
        why = why or (done.stderr.strip().splitlines() or ["?"])[-1]
    return f"AutoCast fails: {why}"[:160]


def measured(tag: str, way: str, path: Path, model: Path, feeds: Mapping[str, Any]) -> Found:
    refused = loads(path)
    failed = refused or builds(path, feeds)
    why = failed
    error = None
    try:
        error = apart(run(model, feeds), run(path, feeds))
    except Exception as problem:
        why = why or f"ONNX Runtime: {problem}"[:160]
    return Found(
        tag=tag, way=way, loads="no" if refused else "yes", builds="no" if failed else "yes", error=error,
        kept=in_fp32(path), of=in_fp32(model), why=why,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--autocast", default="")
    parser.add_argument("--type", choices=("FP16", "BF16"), default="FP16")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--keep", type=Path, help="a folder for the models, which are then not made again")
    given = parser.parse_args()
    api = load_api(RTX)
    print(f"{api.title} {api.version}, {given.type}\n")
    print("| model | way | loads | builds | rel L2 | in FP32 | of | why |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for line in (given.models / "list.txt").read_text().splitlines():
            tag, name, inputs = line.split()
            if given.only and tag not in given.only:
                continue
            for row in rows(given, tag, given.models / name, given.models / inputs, folder):
                error = "-" if row.error is None else f"{row.error:.2e}"
                kept = "-" if row.kept is None else row.kept
                why = row.why.replace("|", "/").replace("\n", " ")
                print(f"| {tag} | {row.way} | {row.loads} | {row.builds} | {error} | {kept} | {row.of} | {why} |",
                      flush=True)  # fmt: skip


def rows(given: argparse.Namespace, tag: str, model: Path, inputs: Path, folder: Path) -> Iterator[Found]:
    with np.load(inputs) as file:
        known = {one.name for one in source_of(model).inputs}
        feeds = {name: file[name] for name in file.files if name in known}
    yield measured(tag, "model", model, model, feeds)
    mine = of_ours(tag, "ours", model, feeds, given.type, folder, {})
    yield mine
    if not given.autocast:
        return
    path = folder / f"{tag}.{given.type.lower()}.autocast.onnx"
    why = "" if path.exists() else autocast(given.autocast, model, inputs, given.type, path)
    theirs = Found(tag=tag, way="AutoCast", why=why) if why else measured(tag, "AutoCast", path, model, feeds)
    yield theirs
    if mine.error is None or theirs.error is None or mine.error <= _SAME * theirs.error:
        return
    kept = searched(model, inputs, given.type, theirs.error, folder)
    yield of_ours(tag, "ours, searched", model, feeds, given.type, folder, {"keep_layers": kept})


def of_ours(
    tag: str, way: str, model: Path, feeds: Mapping[str, Any], kind: str, folder: Path, options: Mapping[str, Any]
) -> Found:
    path = folder / f"{tag}.{kind.lower()}.{way.replace(', ', '_')}.onnx"
    try:
        onnx.save(ours(model, feeds, kind, folder, options).model.proto, path)
    except PrecisionDebugError as error:
        return Found(tag=tag, way=way, why=str(error)[:160])
    return measured(tag, way, path, model, feeds)


def searched(model: Path, inputs: Path, kind: str, limit: float, folder: Path) -> list[str]:
    """Nodes that the search keeps in FP32 so that no output is further off than ``limit``."""
    output = folder / "search.json"
    subprocess.run(
        [sys.executable, "-m", "precision_debug", "search", "--model_file", str(model), "--inputs", str(inputs),
         "--run_mode", f"ort_{kind.lower()}_sim", "--limit", str(limit), "--quiet", "--output", str(output)],
        capture_output=True, check=False, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}"},
    )  # fmt: skip
    fix = json.loads(output.read_text())["fix"]
    return [str(node) for unit in fix["kept"] for node in unit["nodes"]]


if __name__ == "__main__":
    main()
