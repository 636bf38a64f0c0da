"""A model whose intermediate tensors are many times the memory budget: does it finish, in what memory, how fast?

    python tests/benchmarks/bench_memory.py [--tensors 60] [--mb 32] [--share 20] [--repeat 3]

A chain of element-wise operators, ort_fp32 against ort_fp16_sim, three ways in processes of their own, taking turns:
everything waits in memory; with a budget of 1/share of the intermediate bytes (the rest waits on disk); in lockstep
(nothing waits). Prints the medians of time and peak memory (ru_maxrss, less that of a run on a tiny tensor: what the
libraries take) as a markdown table.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = ("Sigmoid", "Tanh", "Sin", "Relu", "Cos")


def build(path: str, tensors: int, elements: int) -> None:
    import onnx
    from onnx import TensorProto, helper

    names = ["x", *(f"t{i}" for i in range(tensors))]
    nodes = [
        helper.make_node(OPERATORS[i % len(OPERATORS)], [names[i]], [names[i + 1]], name=f"n{i}")
        for i in range(tensors)
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [elements]) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def child(model: str, lockstep: bool, budget: int) -> None:
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401

    import precision_debug

    options = {"memory_budget": budget} if budget else {}
    begun = time.perf_counter()
    report = precision_debug.compare(model, run_mode="ort_fp16_sim", lockstep=lockstep, **options)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "compared": len(report.compared)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=60)
    parser.add_argument("--mb", type=int, default=32)
    parser.add_argument("--share", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--child", nargs=3, default=None)
    given = parser.parse_args()
    if given.child:
        child(given.child[0], given.child[1] == "on", int(given.child[2]))
        return
    total = given.tensors * given.mb
    budget = total // given.share
    with tempfile.TemporaryDirectory() as folder:
        big, tiny = str(Path(folder, "big.onnx")), str(Path(folder, "tiny.onnx"))
        build(big, given.tensors, given.mb * 2**18)
        build(tiny, given.tensors, 4)
        cases = {
            "libraries alone": (tiny, "off", 0),
            "all in memory": (big, "off", 0),
            f"--memory_budget {budget}M": (big, "off", budget * 2**20),
            "lockstep": (big, "on", 0),
        }
        runs: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
        for _ in range(given.repeat):
            for case, arguments in cases.items():
                done = subprocess.run(
                    [sys.executable, __file__, "--child", *map(str, arguments)],
                    capture_output=True, text=True, check=True, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'backends'}"},
                )  # fmt: skip
                runs[case].append(json.loads(done.stdout.splitlines()[-1]))
    median = {
        case: {key: statistics.median(run[key] for run in found) for key in found[0]} for case, found in runs.items()
    }
    floor, memory = median["libraries alone"]["peak_mb"], median["all in memory"]["seconds"]
    print(f"{given.tensors} tensors of {given.mb} MB, {total} MB in all, medians of {given.repeat}\n")
    print("| way | s | x in memory | peak MB over the libraries | tensors compared |\n|---|---|---|---|---|")
    for case, value in median.items():
        print(
            f"| {case} | {value['seconds']:.2f} | {value['seconds'] / memory:.2f} "
            f"| {value['peak_mb'] - floor:.0f} | {value['compared']:.0f} |"
        )


if __name__ == "__main__":
    main()
