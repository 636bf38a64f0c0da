"""What an explanation costs: whole runs with and without it, time and peak memory, side by side.

    python tests/benchmarks/bench_explain.py [REPEATS]

ResNet-50 (batch 8), a transformer encoder of 12 layers, and a chain of 4000 small operators, in ort_fp16_sim and
ort_opt. Each run is a process of its own; they alternate, and medians are shown.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

RUN = """
import json, resource, sys, time
import numpy as np
import precision_debug
model, mode, level, shapes = sys.argv[1:5]
begun = time.monotonic()
report = precision_debug.compare(model, run_mode=mode, explain=level)
seconds = time.monotonic() - begun
explained = report.explanation.seconds if report.explanation else 0.0
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "explaining": explained, "peak": peak,
                  "state": report.explanation.state if report.explanation else ""}))
"""


def models(folder: Path) -> dict[str, Path]:
    """The three models, written once."""
    import importlib.util

    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    sys.path[:0] = [str(ROOT / "tests")]
    import tensorrt_models

    spec = importlib.util.spec_from_file_location("resnet_build", ROOT / "examples" / "resnet" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = build
    spec.loader.exec_module(build)
    found = {}
    for name, proto in (
        ("ResNet-50, batch 8", build.build(50, batch=8)),
        ("encoder, 12 layers", tensorrt_models.encoder(layers=12, length=128, width=384, heads=6)),
    ):
        found[name] = folder / f"{name.partition(',')[0]}.onnx"
        onnx.save(proto, found[name])
    nodes, x = [], "x"
    for number in range(4000):
        nodes.append(helper.make_node(("Add", "Mul")[number % 2], [x, ("c", "k")[number % 2]], [f"t{number}"]))
        x = f"t{number}"
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 16])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [16, 16])],
        [numpy_helper.from_array(np.float32(0.01), "c"), numpy_helper.from_array(np.float32(1.0001), "k")],
    )  # fmt: skip
    found["4000 small operators"] = folder / "chain.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        found["4000 small operators"],
    )
    return found


def main() -> int:
    if sys.argv[1:2] == ["--write"]:
        print(json.dumps({name: str(path) for name, path in models(Path(sys.argv[2])).items()}))
        return 0
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("| model | mode | state | off, s | fast, s | ratio | explaining, s | peak off, MB | peak fast, MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        # in a process of its own: a child's peak memory begins at its parent's
        command = [sys.executable, __file__, "--write", folder]
        written = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name, path in json.loads(written.splitlines()[-1]).items():
            for mode in ("ort_fp16_sim", "ort_opt"):
                got: dict[str, list[dict[str, float]]] = {"off": [], "fast": []}
                for _ in range(repeats):
                    for level, results in got.items():
                        done = subprocess.run(
                            [sys.executable, "-c", RUN, str(path), mode, level, ""],
                            cwd=ROOT, capture_output=True, text=True, check=True,
                        )  # fmt: skip
                        results.append(json.loads(done.stdout.splitlines()[-1]))

                def median(level: str, key: str, got: dict[str, list[dict[str, float]]] = got) -> float:
                    return statistics.median(result[key] for result in got[level])

                off, fast = median("off", "seconds"), median("fast", "seconds")
                print(
                    f"| {name} | {mode} | {got['fast'][0]['state']} | {off:.2f} | {fast:.2f} | {fast / off:.2f} |"
                    f" {median('fast', 'explaining'):.2f} | {median('off', 'peak'):.0f} |"
                    f" {median('fast', 'peak'):.0f} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
