"""What a command costs a row of its table: processor seconds beside a bare process, on a model of many small tensors.

    PYTHONPATH=.:backends python tests/benchmarks/bench_rows.py [--rows 30000] [--repeat 3] [--explain off]

The model is layers of MatMul, Add, Relu and Mul over [4, 16], with a residual, as an export has them. "bare" opens the
model twice (nothing fused, then as it ships) and runs each once; "command" is the whole command, its children and its
report in HTML included. CPU seconds, user and system; cases take turns, medians. Ends with 1 where the command's own
exceeds --most milliseconds a row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BARE = """
import sys, numpy as np, onnxruntime as ort
for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.load(sys.argv[2])["x"]})
"""


def build(path: Path, rows: int) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for layer in range(max(1, rows // 5)):
        weights.append(numpy_helper.from_array((random.normal(size=(16, 16)) / 5).astype(np.float32), f"l{layer}.w"))
        weights.append(numpy_helper.from_array(random.normal(size=16).astype(np.float32) / 9, f"l{layer}.b"))
        weights.append(numpy_helper.from_array(np.float32(0.5), f"l{layer}.s"))
        name = f"/layers.{layer}"
        for kind, given, made in (
            ("MatMul", [last, f"l{layer}.w"], "mm"), ("Add", [f"{name}/mm", f"l{layer}.b"], "add"),
            ("Relu", [f"{name}/add"], "relu"), ("Mul", [f"{name}/relu", f"l{layer}.s"], "mul"),
            ("Add", [f"{name}/mul", last], "res"),
        ):  # fmt: skip
            nodes.append(helper.make_node(kind, given, [f"{name}/{made}"], name=f"{name}/{made}/{kind}"))
        last = f"{name}/res"
    nodes.append(helper.make_node("Softmax", [last], ["y"], name="head/Softmax"))
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "rows", [given], [made], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def cpu(command: list[str], folder: Path) -> float:
    """Seconds of the processor that a command takes, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{command}: {done.returncode}\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--explain", default="fast")
    parser.add_argument("--run_mode", default="ort_opt")
    parser.add_argument("--most", type=float, default=1.0)
    options = parser.parse_args()
    os.environ["OMP_WAIT_POLICY"] = "passive"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        build(folder / "rows.onnx", options.rows)
        np.savez(folder / "x.npz", x=np.random.default_rng(1).normal(size=(4, 16)).astype(np.float32))
        cases = {
            "bare": [sys.executable, "-c", BARE, "rows.onnx", "x.npz"],
            "command": [
                sys.executable, "-m", "precision_debug", "--model_file", "rows.onnx", "--run_mode", options.run_mode,
                "--inputs", "x.npz", "--explain", options.explain, "--output", "r.html", "--output", "r.json",
            ],
        }  # fmt: skip
        spent: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(options.repeat):
            for name, command in cases.items():
                spent[name].append(cpu(command, folder))
        rows = len(json.loads((folder / "r.json").read_text())["rows"])
    bare, whole = (statistics.median(spent[name]) for name in cases)
    own = 1000 * (whole - bare) / rows
    said = f"bare {bare:.2f}, command {whole:.2f} CPU seconds; {own:.2f} ms a row"
    print(f"{rows} rows, --explain {options.explain}: {said}")
    return int(own > options.most)


if __name__ == "__main__":
    sys.exit(main())
