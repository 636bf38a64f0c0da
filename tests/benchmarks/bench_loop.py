"""A Loop of many iterations: the whole command beside one bare run, by turns.

python tests/benchmarks/bench_loop.py [--iterations 501] [--operators 160] [--repeat 3]

The model is a recognition head as SLANet's: one Loop whose body holds layers of MatMul, gates and a mean.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BARE = """
import sys, numpy, onnxruntime
onnxruntime.InferenceSession(sys.argv[1]).run(None, dict(numpy.load(sys.argv[2])))
"""


def build(path: Path, iterations: int, operators: int, width: int = 256, cells: int = 96) -> None:
    """The model, of states [cells, width]."""
    drawn = np.random.default_rng(0)
    nodes, weights, state = [], [], "state"
    while len(nodes) < operators - 4:
        at = f"l{len(nodes) // 8}_"
        matrix = (drawn.normal(size=(width, width)) * 0.8 / np.sqrt(width)).astype(np.float32)
        weights += [numpy_helper.from_array(matrix, f"{at}w"),
                    numpy_helper.from_array((drawn.normal(size=width) * 0.1).astype(np.float32), f"{at}b")]  # fmt: skip
        for kind, reads, gives in (
            ("MatMul", [state, f"{at}w"], "mm"), ("Add", [f"{at}mm", f"{at}b"], "add"),
            ("Sigmoid", [f"{at}add"], "sig"), ("Tanh", [f"{at}add"], "tanh"),
            ("Mul", [f"{at}sig", f"{at}tanh"], "gate"), ("Add", [f"{at}gate", state], "res"),
            ("ReduceMean", [f"{at}res"], "mean"), ("Sub", [f"{at}res", f"{at}mean"], "out"),
        ):  # fmt: skip
            told = {"axes": [1], "keepdims": 1} if kind == "ReduceMean" else {}
            nodes.append(helper.make_node(kind, reads, [at + gives], f"{at}{gives}", **told))
        state = f"{at}out"
    nodes += [
        helper.make_node("Tanh", [state], ["state_out"], "last"),
        helper.make_node("Identity", ["go"], ["on"], "on"),
    ]
    flag, number, values = TensorProto.BOOL, TensorProto.INT64, TensorProto.FLOAT
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        nodes, "body", [info("it", number, []), info("go", flag, []), info("state", values, [cells, width])],
        [info("on", flag, []), info("state_out", values, [cells, width])],
    )  # fmt: skip
    weights += [
        numpy_helper.from_array(np.array(iterations, np.int64), "n"),
        numpy_helper.from_array(np.array(True), "t"),
    ]
    first, loop = helper.make_node("Relu", ["x"], ["x0"]), helper.make_node("Loop", ["n", "t", "x0"], ["y"], body=body)
    ends = [info("x", values, [cells, width])], [info("y", values, [cells, width])]
    graph = helper.make_graph([first, loop], "g", *ends, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    np.savez(path.with_suffix(".npz"), x=drawn.normal(size=(cells, width)).astype(np.float32))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=501)
    parser.add_argument("--operators", type=int, default=160)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "loop.onnx")
        build(model, args.iterations, args.operators)
        feeds = str(model.with_suffix(".npz"))
        ours = [
            "-m",
            "precision_debug",
            "--model_file",
            str(model),
            "--inputs",
            feeds,
            "--run_mode",
            "ort_opt",
            "--quiet",
        ]
        ways = {"bare": ["-c", BARE, str(model), feeds], "ours": [*ours, "--output", f"{folder}/out.json"]}
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(args.repeat):
            for name, words in ways.items():
                begun = time.perf_counter()
                subprocess.run([sys.executable, *words], check=True, capture_output=True)
                taken[name].append(time.perf_counter() - begun)
    bare, whole = (statistics.median(taken[name]) for name in ways)
    print(f"bare {bare:.1f} s, command {whole:.1f} s: {whole / bare:.1f} times (medians of {args.repeat}, by turns)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
