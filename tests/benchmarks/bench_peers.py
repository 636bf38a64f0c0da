"""Others that choose what stays in FP32, side by side on four models: ``python bench_peers.py PYTHON [MODEL.onnx …]``.

PYTHON: of an environment with onnxconverter-common, nvidia-modelopt, onnx_graphsurgeon and onnxslim. MODEL.onnx has its
inputs beside it as MODEL.npz. Two planted models are always run. Each tool gets the model and the inputs, and is asked
for FP16 with at most 1 % (relative L2) of error. What it gives is loaded and run as it is by a stock ONNX Runtime on
the CPU, which computes float16 between casts, and counted: nodes that still give float32, and the outputs' error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

LIMIT = 0.01

_CONVERTER = """
import json, sys, time
import numpy as np, onnx, onnxruntime
from onnxconverter_common import auto_mixed_precision as auto
path, feeds, out, limit = sys.argv[1], dict(np.load(sys.argv[2])), sys.argv[3], float(sys.argv[4])
made = onnxruntime.InferenceSession.__init__
count = [0]
def counted(self, *a, **k):
    count[0] += 1
    return made(self, *a, **k)
onnxruntime.InferenceSession.__init__ = counted
def holds(exact, got):
    for e, g in zip(exact, got):
        e, g = np.asarray(e, np.float64), np.asarray(g, np.float64)
        if not np.isfinite(g).all() or np.linalg.norm(e - g) > limit * np.linalg.norm(e):
            return False
    return True
model = auto.auto_convert_mixed_precision(onnx.load(path), feeds, validate_fn=holds, keep_io_types=True)
onnx.save(model, out)
print(json.dumps({"evaluations": count[0]}))
"""

_AUTOCAST = """
import json, sys
import onnx
from modelopt.onnx.autocast import convert_to_mixed_precision
model = convert_to_mixed_precision(sys.argv[1], low_precision_type="fp16", calibration_data=sys.argv[2],
                                   keep_io_types=True)
onnx.save(model, sys.argv[3])
print(json.dumps({"evaluations": 1}))
"""

_OURS = "precision_debug search"


def planted(folder: Path) -> list[tuple[str, Path, Path]]:
    from planted.kept_fresh import CASES

    found = []
    for name in ("three_of_two_kinds", "energies"):
        place = folder / name
        place.mkdir()
        model, feeds = next(case for case in CASES if case.name == name).make(place)
        np.savez(place / "inputs.npz", **(feeds or {}))
        found.append((name, Path(model), place / "inputs.npz"))
    return found


def cpu_seconds() -> float:
    """Of the children that were waited for: other work on the machine changes them little."""
    return sum(os.times()[2:4])


def ran(command: list[str], folder: Path, limit_s: int = 1200) -> tuple[dict[str, Any], float, str]:
    """What a tool said as JSON on its last line, its CPU seconds, and its last words where it failed."""
    begun = cpu_seconds()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH" or command[1] == "-m"}
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=environment,
                              timeout=limit_s)  # fmt: skip
    except subprocess.TimeoutExpired:
        return {}, cpu_seconds() - begun, f"stopped after {limit_s} s"
    said: dict[str, Any] = {}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            said = json.loads(line)
            break
    failed = "" if said or done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1][:110]
    return said, cpu_seconds() - begun, failed


def measured(model: Path, made: Path, inputs: Path) -> str:
    """Nodes that still give float32 of those that give floats, and the error; or why it does not load."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    feeds = dict(np.load(inputs))
    exact = _run(str(model), feeds, options)
    try:
        got = _run(str(made), feeds, options)
    except Exception as error:
        return f"- | - | does not load: {str(error)[:70]}"
    worst = 0.0
    for name, value in exact.items():
        mine, theirs = value.astype(np.float64), got[name].astype(np.float64)
        error = float(np.linalg.norm(mine - theirs) / max(np.linalg.norm(mine), 1e-30))
        worst = max(worst, error if np.isfinite(theirs).all() or not np.isfinite(mine).all() else float("inf"))
    shown = onnx.shape_inference.infer_shapes(onnx.load(made))
    types = {value.name: value.type.tensor_type.elem_type for value in shown.graph.value_info}
    own = {name for node in onnx.load(model).graph.node for name in node.output}
    nodes = [node for node in shown.graph.node if node.op_type not in ("Cast", "Constant")]
    floats = [[types.get(name, 0) for name in node.output] for node in nodes if own & set(node.output) or node.name]
    wide = sum(onnx.TensorProto.FLOAT in kinds for kinds in floats)
    every = sum(bool({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16} & set(kinds)) for kinds in floats)
    return f"{wide}/{every} | {worst:.3g}{'' if worst <= LIMIT else ' (more than asked)'} | yes"


def _run(path: str, feeds: dict[str, Any], options: Any) -> dict[str, Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = {item.name: item.type for item in session.get_inputs()}
    given = {name: value.astype(np.float16) if wanted.get(name) == "tensor(float16)" else value
             for name, value in feeds.items() if name in wanted}  # fmt: skip
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


def main(python: str, models: list[str]) -> int:
    print("| model | tool | nodes in FP32 | error | loads | evaluations | CPU seconds |")
    print("|---|---|---:|---|---|---:|---:|")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        scripts = {}
        for name, text in (("converter.py", _CONVERTER), ("autocast.py", _AUTOCAST)):
            (folder / name).write_text(text, encoding="utf-8")
            scripts[name] = str(folder / name)
        every = [*planted(folder), *((Path(one).stem, Path(one), Path(one).with_suffix(".npz")) for one in models)]
        for name, model, inputs in every:
            for tool in ("precision_debug search", "onnxconverter-common auto_mixed_precision", "ModelOpt AutoCast"):
                made = folder / f"{name}-{tool.split()[0]}.onnx"
                if tool == _OURS:
                    output = folder / f"{name}.json"
                    said, seconds, failed = ran(
                        [sys.executable, "-m", "precision_debug", "search", "--model_file", str(model), "--run_mode",
                         "ort_fp16_sim", "--inputs", str(inputs), "--limit", str(LIMIT), "--quiet", "--runs", "60",
                         "--output", str(output)], folder)  # fmt: skip
                    if output.exists():
                        fix = json.loads(output.read_text(encoding="utf-8"))["fix"]
                        said = {"evaluations": fix["evaluations"]}
                        paths = [item.get("path", "") for item in fix["artefacts"]]
                        path = next((one for one in paths if one.endswith(".onnx")), "")
                        made = Path(path) if path else made
                else:
                    script = scripts["converter.py" if tool.startswith("onnxconverter") else "autocast.py"]
                    command = [python, script, str(model), str(inputs), str(made), str(LIMIT)]
                    said, seconds, failed = ran(command, folder)
                found = measured(model, made, inputs) if made.exists() else f"- | - | nothing made: {failed}"
                print(f"| {name} | {tool} | {found} | {said.get('evaluations', '')} | {seconds:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
