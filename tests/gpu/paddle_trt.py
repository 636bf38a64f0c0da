"""Paddle-TRT on a GPU machine: every step of the backend that a CPU cannot show. About seven minutes.

Start it in the repository's root, with paddlepaddle-gpu 2.6.2 and TensorRT 8.5.3 on Python 3.11:

    . ENV/env.sh && OUT=/some/folder python3.11 tests/gpu/paddle_trt.py [STEP ...]

Without steps all are run, the quick and important ones first, until $BUDGET seconds (480) are used: what is left is
listed as not run. Each step is a process of its own, so one that fails or crashes costs no other. $OUT gets a folder a
step (output.xlsx, output.json, log.txt), summary.json and summary.txt, which are rewritten after every step. ``--dry``
runs the same steps with CPU modes, to try the script itself.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests")]

OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu_paddle")).resolve()
DRY = "--dry" in sys.argv
MODES = {"trt_fp32": "cpu_opt", "trt_fp16": "onednn_fp32", "trt_int8": "cpu_opt"} if DRY else {}
SHAPES: dict[str, list[int]] = {}


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")]
    results: dict[str, Any] = {}
    started, budget = time.monotonic(), float(os.environ.get("BUDGET", "480"))
    for name in chosen or list(STEPS):
        if time.monotonic() - started > budget:
            results[name] = {"not run": f"the budget of {budget:.0f} s was used up", "seconds": 0}
            continue
        begun = time.monotonic()
        try:
            results[name] = STEPS[name](OUT / name)
        except Exception:
            results[name] = {"failed": traceback.format_exc()}
        results[name]["seconds"] = round(time.monotonic() - begun, 1)
        (OUT / "summary.json").write_text(json.dumps(results, indent=1, default=str))
        (OUT / "summary.txt").write_text("\n".join(_lines(results)) + "\n")
        print(f"== {name}: {results[name]['seconds']} s", flush=True)
    print((OUT / "summary.txt").read_text())
    return 0


def _lines(results: dict[str, Any]) -> list[str]:
    lines = []
    for name, result in results.items():
        lines.append(f"== {name} ({result.get('seconds')} s)")
        for key, value in result.items():
            if key != "seconds":
                text = value if isinstance(value, str) else json.dumps(value, default=str)
                lines += [f"   {key}: {line}" for line in text.splitlines()]
    return lines


def machine(folder: Path) -> dict[str, Any]:
    """Versions, the capability check, and what a mode says that cannot run here."""
    code = """
import json
from precision_debug_paddle import PaddleBackend, capability
backend = PaddleBackend()
found = {mode.name: backend.availability(mode.name) for mode in backend.run_modes}
card = capability.gpu()
print("RESULT", json.dumps({
    "versions": capability.versions(gpu=True, tensorrt=True),
    "card": None if card is None else [card.name, card.capability, card.works, card.problem],
    "modes": {name: "yes" if item.ok else item.needs for name, item in found.items()},
}))
"""
    return _python(folder, code)


def fatbin(folder: Path) -> dict[str, Any]:
    """What a native GPU predictor gives where the wheel has no code for the card: the garbage that the check is for."""
    code = """
import json, sys, tempfile, pathlib, numpy as np, paddle_models
from paddle import inference
path = paddle_models.legacy("cnn", pathlib.Path(tempfile.mkdtemp()))
config = inference.Config(str(path), str(path.with_suffix(".pdiparams")))
config.enable_use_gpu(256, 0); config.switch_ir_optim(False)
predictor = inference.create_predictor(config)
x = paddle_models.feeds("cnn")["x"]
handle = predictor.get_input_handle("x"); handle.reshape(x.shape); handle.copy_from_cpu(x); predictor.run()
y = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
print("RESULT", json.dumps({"output": [float(y.min()), float(y.max())], "row sums": y.sum(axis=1).tolist()}))
"""
    return _python(folder, code)


def inspector(folder: Path) -> dict[str, Any]:
    """Where Paddle puts the inspector's file, by how the cache folder is named and how the shapes are given."""
    found: dict[str, Any] = {}
    for label in ("default", "cache", "cache/", "default static", "default use_static", "default marked"):
        home = folder / label.replace("/", "_slash").replace(" ", "_")
        code = f"""
import json, os, pathlib, paddle_models
from paddle import inference
label, home = {label!r}, pathlib.Path({str(home)!r})
home.mkdir(parents=True, exist_ok=True); os.chdir(home)
path = paddle_models.legacy("cnn", home)
x = paddle_models.feeds("cnn")["x"]
config = inference.Config(str(path), str(path.with_suffix(".pdiparams")))
config.enable_use_gpu(256, 0)
if label.startswith("cache"):
    config.set_optim_cache_dir(str(home) + "/" + label)
config.enable_tensorrt_engine(1 << 28, 2, 3, inference.PrecisionType.Half, "use_static" in label, False)
if label != "default static":
    shapes = {{"x": list(x.shape)}}
    config.set_trt_dynamic_shape_info(shapes, shapes, shapes)
config.enable_tensorrt_inspector(True)
if "marked" in label:
    config.mark_trt_engine_outputs(["relu_0.tmp_0"])
predictor = inference.create_predictor(config)
def files():
    return sorted(str(p.relative_to(home)) for p in home.rglob("*"))
built = files()
handle = predictor.get_input_handle("x"); handle.reshape(x.shape); handle.copy_from_cpu(x); predictor.run()
print("RESULT", json.dumps({{"built": built, "after a run": [name for name in files() if name not in built]}}))
"""
        found[label] = _python(home, code)
        log = (home / "log.txt").read_text().splitlines()
        found[label]["said"] = [line[:200] for line in log if "nspect" in line or "engine info" in line][:5]
    return found


def gpu_fp32(folder: Path) -> dict[str, Any]:
    """The capability check through the command line: exit status 2 and one line on sm_90."""
    return _compare(folder, "cnn", "gpu_fp32")


def resnet_fp32(folder: Path) -> dict[str, Any]:
    return _compare(folder, "resnet18", "trt_fp32", "--atol", "1e-3", "--rtol", "1e-3")


def resnet_fp16(folder: Path) -> dict[str, Any]:
    return _compare(folder, "resnet18", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2")


def resnet_fp16_fused(folder: Path) -> dict[str, Any]:
    return _compare(
        folder, "resnet18", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2", "--option", "fused_only=True"
    )


def resnet_fp32_tf32_off(folder: Path) -> dict[str, Any]:
    """TensorRT may take TF32 for FP32; NVIDIA's switch forbids it."""
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    try:
        return _compare(folder, "resnet18", "trt_fp32", "--atol", "1e-3", "--rtol", "1e-3")
    finally:
        del os.environ["NVIDIA_TF32_OVERRIDE"]


def encoder_fp16(folder: Path) -> dict[str, Any]:
    return _compare(folder, "encoder", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2")


def encoder_collected(folder: Path) -> dict[str, Any]:
    return _compare(
        folder, "encoder", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2",
        "--option", "collect_shape_range=True", "--option", "fused_only=True",
    )  # fmt: skip


def fault(folder: Path) -> dict[str, Any]:
    """A weight scaled so that FP16 overflows in the middle layer: the first mismatch must be that layer."""

    def plant(weights: dict[str, Any]) -> None:
        weights["linear_1.w_0"] *= 1e5

    result = _compare(folder, "mlp", "trt_fp16", "--atol", "0.05", "--rtol", "0.05", change=plant)
    result["expected"] = "first mismatch is linear_1.tmp_0 or linear_1.tmp_1"
    return result


def resnet_fault(folder: Path) -> dict[str, Any]:
    """A batch norm's weight in the middle of ResNet-18 scaled out of FP16's range."""

    def plant(weights: dict[str, Any]) -> None:
        weights["batch_norm2d_9.w_0"] *= 1e6

    result = _compare(
        folder, "resnet18", "trt_fp16", "--atol", "0.5", "--rtol", "0.05", "--option", "fused_only=True", change=plant
    )
    result["expected"] = "first mismatch is the first fused tensor at or after batch_norm_9.tmp_2"
    return result


def dynamic(folder: Path) -> dict[str, Any]:
    shapes = {which: f"x:[{batch},3,16,16]" for which, batch in (("min", 1), ("opt", 2), ("max", 4))}
    extra = [part for which, text in shapes.items() for part in (f"--{which}_shapes", text)]
    return _compare(folder, "cnn", "trt_fp16", "--use_dynamic_shape", "1", *([] if DRY else extra))


def calibration(folder: Path) -> dict[str, Any]:
    return _compare(folder, "cnn", "trt_int8", "--atol", "0.1", "--rtol", "0.1")


def calibration_refused(folder: Path) -> dict[str, Any]:
    """The combination on which Paddle aborts: must end with status 2 and one line, not with a crash."""
    return _compare(folder, "cnn", "trt_int8", "--use_dynamic_shape", "1", "--option", "collect_shape_range=True")


def bf16_refused(folder: Path) -> dict[str, Any]:
    """TensorRT 8.5 has no bfloat16."""
    return _compare(folder, "cnn", "trt_bf16")


def disabled_ops(folder: Path) -> dict[str, Any]:
    """An operator that is kept out of TensorRT runs on Paddle's own kernels: refused on a card without code."""
    return _compare(folder, "cnn", "trt_fp16", "--option", "disable_tensorrt_ops=['pool2d']")


def disabled_collected(folder: Path) -> dict[str, Any]:
    """The same with the shape range of every tensor, which a graph in two parts needs."""
    return _compare(
        folder, "cnn", "trt_fp16", "--option", "disable_tensorrt_ops=['pool2d']", "--option", "collect_shape_range=True"
    )


def mobilenet_fp16(folder: Path) -> dict[str, Any]:
    return _compare(
        folder, "mobilenet_v3", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2", "--option", "fused_only=True"
    )


def section(folder: Path) -> dict[str, Any]:
    """Marks of the user's own: nine tensors in the middle of ResNet-18."""
    return _compare(
        folder, "resnet18", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2",
        "--marks_between", "relu_3.tmp_0", "relu_5.tmp_0",
    )  # fmt: skip


def cached(folder: Path) -> dict[str, Any]:
    """Inspector files and engines in a folder of the user's, as the example does."""
    result = _compare(
        folder, "cnn", "trt_fp16", "--option", "mark_all=False", "--option", f"cache_dir='{folder / 'cache'}'",
        "--option", "use_static=True",
    )  # fmt: skip
    result["cache"] = sorted(path.name for path in (folder / "cache").glob("*"))
    return result


def unmarked(folder: Path) -> dict[str, Any]:
    return _compare(folder, "cnn", "trt_fp16", "--option", "mark_all=False")


STEPS = {
    step.__name__: step
    for step in (
        machine, inspector, resnet_fp16_fused, resnet_fp32, resnet_fp32_tf32_off, disabled_ops, disabled_collected,
        unmarked, dynamic, cached, fatbin, encoder_collected, fault, resnet_fp16, encoder_fp16, resnet_fault, section,
        mobilenet_fp16, calibration, calibration_refused, bf16_refused, gpu_fp32,
    )
}  # fmt: skip


def _environment(folder: Path) -> dict[str, str]:
    plugin = folder / "plugin" / "paddle_entry-0.dist-info"
    plugin.mkdir(parents=True, exist_ok=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: paddle_entry\nVersion: 0\n")
    (plugin / "entry_points.txt").write_text(
        "[precision_debug.backends]\npaddle = precision_debug_paddle:PaddleBackend\n"
    )
    paths = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests"), str(plugin.parent)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]), "COLUMNS": "200"}


def _python(folder: Path, code: str) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=_environment(folder), timeout=240,
        check=False,
    )  # fmt: skip
    (folder / "log.txt").write_text(done.stdout + done.stderr)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return dict(json.loads(line[7:]))
    return {"status": done.returncode, "last words": (done.stdout + done.stderr)[-1500:]}


def _compare(folder: Path, name: str, mode: str, *options: str, change: Any = None) -> dict[str, Any]:
    import paddle_models

    folder.mkdir(parents=True, exist_ok=True)
    path = paddle_models.legacy(name, folder, change=change)
    import numpy as np

    np.savez(folder / "feeds.npz", **paddle_models.feeds(name))
    command = [
        sys.executable, "-m", "precision_debug", "--model_file", str(path),
        "--params_file", str(path.with_suffix(".pdiparams")), "--run_mode", MODES.get(mode, mode),
        "--inputs", str(folder / "feeds.npz"), "--output", str(folder / "output.xlsx"),
        "--output", str(folder / "output.json"), *options,
    ]  # fmt: skip
    begun = time.time()
    done = subprocess.run(
        command, capture_output=True, text=True, env=_environment(folder), timeout=300, cwd=folder, check=False
    )
    (folder / "log.txt").write_text(" ".join(command) + "\n" + done.stdout + done.stderr)
    path.with_suffix(".pdiparams").unlink()
    result: dict[str, Any] = {"status": done.returncode, "wall": round(time.time() - begun, 1)}
    if done.stderr.strip():
        result["stderr"] = done.stderr.strip()[-1200:]
    report = folder / "output.json"
    if report.exists():
        result.update(_summary(json.loads(report.read_text())))
    return result


def _summary(report: dict[str, Any]) -> dict[str, Any]:
    rows = report["rows"]
    compared = [row for row in rows if row.get("comparison")]
    first = next((row for row in rows if row["status"] == "fail"), None)
    worst = max((row["comparison"].get("max_abs") or 0 for row in compared if _finite(row)), default=None)

    def brief(row: dict[str, Any] | None) -> Any:
        if row is None:
            return None
        numbers = row["comparison"]
        return [row["op_type"], row["name"], row.get("target_op_type"), numbers.get("max_abs"), numbers.get("sqnr_db"),
                row.get("extra")]  # fmt: skip

    return {
        "statuses": dict(collections.Counter(row["status"] for row in rows)),
        "paired by": dict(collections.Counter(row.get("paired_by", "") for row in compared)),
        "first mismatch": brief(first),
        "first compared": brief(compared[0] if compared else None),
        "last compared": brief(compared[-1] if compared else None),
        "largest max_abs": worst,
        "unmatched": [row["name"] for row in rows if row["status"] == "unmatched"][:20],
        "reasons": dict(collections.Counter(row.get("reason", "") for row in rows if row["status"] != "pass")),
        "precisions": dict(collections.Counter((row.get("extra") or {}).get("Real Precision", "") for row in compared)),
        "baseline notes": report["baseline"].get("notes"),
        "target notes": report["target"].get("notes"),
        "versions": report["target"].get("versions"),
    }


def _finite(row: dict[str, Any]) -> bool:
    return isinstance(row["comparison"].get("max_abs"), (int, float))


if __name__ == "__main__":
    sys.exit(main())
