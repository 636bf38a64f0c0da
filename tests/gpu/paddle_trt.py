"""Paddle-TRT on a GPU machine: every step of the backend that a CPU cannot show, one process a step.

Start it in the repository's root, with paddlepaddle-gpu 2.6.2 and TensorRT 8.5.3 on Python 3.11:

    . ENV/env.sh && OUT=/some/folder python3.11 tests/gpu/paddle_trt.py [STEP ...]

Without steps all are run, the important ones first; after $BUDGET seconds (400) none is started any more, and what is
left is listed as not run. Each step is a process of its own, so one that fails or crashes costs no other. $OUT gets a
folder a step (output.xlsx, output.json, log.txt, the inspector's files in cache/), summary.json and summary.txt, which
are rewritten after every step; "checks" in them is what the step is for, by words to true or false, printed as PASS and
FAIL too; the exit status is 1 where one fails. ``all.py paddle_trt_STEP …`` runs them beside each other. ``--dry`` runs
the same steps with CPU modes and without TensorRT's settings, to try the script itself: a step is good then where its
command ends with a report, or is refused where that is asked.
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkout import ROOT

OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu_paddle")).resolve()
DRY = "--dry" in sys.argv
MODES = {"trt_fp32": "cpu_opt", "trt_fp16": "onednn_fp32", "trt_int8": "cpu_opt"} if DRY else {}
ROWS = ("--explain", "off")
"""For steps that ask for rows alone: what a fix would do takes an engine more a set."""
_LIMIT = float(os.environ.get("COMMAND_LIMIT", "560"))
"""Seconds of one command; engines build slowly beside others: ``all.py`` sets it."""
_ENGINES = Path(os.environ.get("ENGINES", OUT / "engines")).resolve()
"""Engines that steps share: what one of MobileNet's built, the next ones load. ``all.py`` sets it."""
INSPECTOR = ROOT / "tests" / "data" / "inspector" / "paddle26_trt853_resnet18_fp16_marked.json"


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")]
    results: dict[str, Any] = {}
    wrong = 0
    started, budget = time.monotonic(), float(os.environ.get("BUDGET", "400"))
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
        wrong += _told(name, results[name])
    print((OUT / "summary.txt").read_text())
    return int(wrong > 0)


def _told(name: str, result: dict[str, Any]) -> int:
    """Print what a step found, and return how many of its checks fail."""
    checks = dict(result.get("checks") or {"ended without an exception": "failed" not in result})
    for words, good in checks.items():
        print(f"{'PASS' if good else 'FAIL'}  {name}: {words}", flush=True)
    print(f"== {name}: {result['seconds']} s", flush=True)
    return sum(not good for good in checks.values())


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
from precision_debug_paddle import PaddleBackend
from precision_debug_paddle.engine import capability
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
    """Where Paddle puts the inspector's file, by how the cache folder is named and how the shapes are given.

    In FP32, where a build has fewer kernels to time."""
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
config.enable_tensorrt_engine(1 << 28, 2, 3, inference.PrecisionType.Float32, "use_static" in label, False)
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
    return _refused(_compare(folder, "cnn", "gpu_fp32", "--quiet"))


def resnet_fp32(folder: Path) -> dict[str, Any]:
    """True FP32: every tensor within 1e-4 of its own scale, and no layer in TF32."""
    result = _compare(folder, "resnet18", "trt_fp32", "--atol", "1e-3", "--rtol", "1e-3", _cache(folder))
    return _checked(
        result,
        {
            "the 50 tensors of facts/paddle.md are paired, and no other": sorted(result.get("paired", ())) == _fifty(),
            "no layer ran in TF32": _counted(result, "TF32") == 0 and _counted(result, "FP32") > 0,
            "every tensor within 1e-4 relative L2": (result.get("largest relative L2") or 1) < 1e-4,
        },
    )


def resnet_tf32(folder: Path) -> dict[str, Any]:
    """TensorRT's default for FP32, asked for by name."""
    result = _compare(
        folder, "resnet18", "trt_fp32", "--atol", "1e-3", "--rtol", "1e-3", "--option", "tf32=True", *ROWS
    )
    return _checked(result, {"layers ran in TF32": _counted(result, "TF32") > 0})


def resnet_fp16(folder: Path) -> dict[str, Any]:
    """Every tensor marked."""
    result = _compare(folder, "resnet18", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2", _cache(folder))
    return _checked(
        result,
        {
            "the 50 tensors of facts/paddle.md are paired, and no other": sorted(result.get("paired", ())) == _fifty(),
            "layers ran in FP16": _counted(result, "FP16") > 0,
            "says how many layers the marks added": " layers to the engine" in str(result.get("target notes")),
        },
    )


def resnet_fp16_fused(folder: Path) -> dict[str, Any]:
    result = _compare(
        folder, "resnet18", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2", "--option", "fused_only=True",
        _cache(folder),
    )  # fmt: skip
    said = str(result.get("target notes"))
    return _checked(
        result,
        {
            "says what became of the fusion": "fusion kept" in said or "fusion changed" in said,
            "fusion kept": "fusion kept" in said,
            "20 tensors or more compared": len(result.get("paired", ())) >= 20,
            "layers ran in FP16": _counted(result, "FP16") > 0,
            "rows name their fused layer": bool(result.get("rows with a fused layer")),
        },
    )


def encoder_fp16(folder: Path) -> dict[str, Any]:
    result = _compare(folder, "encoder", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2", _cache(folder))
    return _checked(result, {"50 tensors or more compared": len(result.get("paired", ())) >= 50})


def encoder_fused(folder: Path) -> dict[str, Any]:
    return _reported(_compare(
        folder, "encoder", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2", "--option", "fused_only=True", *ROWS
    ))  # fmt: skip


def encoder_int8(folder: Path) -> dict[str, Any]:
    """Paddle gives TensorRT no matrix product in the static shape that calibration needs: what it says, in one line."""
    # --quiet: progress is written where a step takes over ten seconds
    result = _compare(folder, "encoder", "trt_int8", "--option", "mark_all=False", "--quiet", *ROWS)
    return _refused(result) if result["status"] == 2 else _reported(result)


def encoder_collected(folder: Path) -> dict[str, Any]:
    return _reported(_compare(
        folder, "encoder", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2",
        "--option", "collect_shape_range=True", "--option", "fused_only=True",
    ))  # fmt: skip


def fault(folder: Path) -> dict[str, Any]:
    """A batch norm in the middle scaled so that its output leaves FP16's range, its folded weights do not: the first
    mismatch must be the first layer behind it that runs in FP16. Wide enough that TensorRT takes FP16 for it (for a
    small matrix it takes FP32).
    """
    result = _compare(folder, "convs", "trt_fp16", "--atol", "0.5", "--rtol", "0.05", _cache(folder), change=_overflow)
    rows = json.loads((folder / "output.json").read_text())["rows"]
    names = [row["name"] for row in rows]
    behind = rows[names.index("batch_norm_1.tmp_2") :]
    # which layers of the engine with marks run in FP16 is the builder's choice: the first that does is meant
    half = [row["name"] for row in behind if (row.get("extra") or {}).get("Real Precision") == "FP16"]
    expected, first = next(iter(half), None), (result.get("first mismatch") or [None, ""])[1]
    numbers = _row(folder, expected or "").get("comparison") or {}
    result["planted"] = {"first in FP16": expected, "target": numbers.get("target")}
    told = numbers.get("target") or {}
    lost = sum(int(told.get(key) or 0) for key in ("nan", "inf", "negative_inf"))  # min and max are of the others
    return _checked(
        result,
        {
            f"first mismatch is {expected}, the first in FP16 from batch_norm_1 on": first == expected,
            "it is not finite": lost > 0,
        },
    )


def _overflow(weights: dict[str, Any]) -> None:
    weights["batch_norm2d_1.w_0"] *= 3e4


_BATCH = 64


def kept_overflow(folder: Path) -> dict[str, Any]:
    """The same fault, taken back by the next batch norm, so that FP16 overflows in the middle alone: a set of operators
    must be found that mends it, and must do so in a predictor that this tool has no hand in. Of so many
    images that FP16 is the faster one for every convolution: of two TensorRT 8.5 took FP32 kernels on one card and FP16
    on another, and then nothing overflows.
    """

    def plant(weights: dict[str, Any]) -> None:
        _overflow(weights)
        weights["batch_norm2d_2.w_0"] /= 3e4

    from precision_debug import Report

    result = _compare(
        folder, "convs", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2", "--option", "mark_all=False", change=plant,
        batch=_BATCH,
    )  # fmt: skip
    # of a comparison: a search's answer would stand in ``fix``
    to_keep = Report.load(folder / "output.json").to_keep
    tried = to_keep if to_keep is not None and to_keep.state else None
    holds = tried is not None and tried.state == "mended"
    kept = list(to_keep.settings.get("disable_tensorrt_half_ops", ())) if to_keep is not None and holds else []
    result["tried"] = None if tried is None else [tried.state, tried.before, tried.after, tried.runs, kept]
    code = f"""
import json, pathlib, numpy as np, paddle_models
from paddle import inference
folder = pathlib.Path({str(folder / "plain")!r}); folder.mkdir(exist_ok=True)
def plant(weights):
    weights["batch_norm2d_1.w_0"] *= 3e4; weights["batch_norm2d_2.w_0"] /= 3e4
path, x = paddle_models.legacy("convs", folder, change=plant), paddle_models.feeds("convs", {_BATCH})["x"]
def run(gpu, kept):
    config = inference.Config(str(path), str(path.with_suffix(".pdiparams")))
    if gpu:
        config.enable_use_gpu(256, 0)
        config.enable_tensorrt_engine(1 << 28, 2, 3, inference.PrecisionType.Half, False, False)
        shapes = {{"x": list(x.shape)}}
        config.set_trt_dynamic_shape_info(shapes, shapes, shapes)
        if kept:
            inference.InternalUtils.disable_tensorrt_half_ops(config, set(kept))
    else:
        config.disable_gpu(); config.switch_ir_optim(False)
    predictor = inference.create_predictor(config)
    handle = predictor.get_input_handle("x"); handle.reshape(x.shape); handle.copy_from_cpu(x); predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu().astype("f8")
right = run(False, ())
print("RESULT", json.dumps([float(np.linalg.norm(run(True, kept) - right) / np.linalg.norm(right))
                            for kept in ((), {kept!r})]))
"""
    before, after = _python(folder, code) if kept else (float("nan"), float("nan"))
    result["without this tool"] = [before, after]
    return _checked(
        result,
        {
            "a set of operators is found": bool(kept),
            "it mends a predictor of Paddle's own": after < 1e-2 and not before < 1e-2,
        },
    )


def resnet_fault(folder: Path) -> dict[str, Any]:
    """A batch norm's weight in the middle of ResNet-18 scaled out of FP16's range."""

    def plant(weights: dict[str, Any]) -> None:
        weights["batch_norm2d_9.w_0"] *= 3e4

    result = _compare(
        folder, "resnet18", "trt_fp16", "--atol", "0.5", "--rtol", "0.05", "--option", "fused_only=True", *ROWS,
        change=plant,
    )  # fmt: skip
    import paddle_models
    from precision_debug_paddle.model import read_model

    from precision_debug.records import ModelFiles

    again = paddle_models.legacy("resnet18", folder)  # the weights are gone: they are too many to be brought back
    program = read_model(ModelFiles(model_file=str(again))).program
    again.with_suffix(".pdiparams").unlink()
    order = [value.name for value in program.values]
    behind = order[order.index("batch_norm_9.tmp_2") :]
    expected = next((name for name in behind if name in result.get("paired", ())), None)
    first = (result.get("first mismatch") or [None, ""])[1]
    return _checked(result, {f"first mismatch is {expected}, the first seen from batch_norm_9 on": first == expected})


def example(folder: Path) -> dict[str, Any]:
    """examples/paddle_trt: all tensors, a section, and the names from the inspector's file of the engine that ships."""
    import paddle_models

    folder.mkdir(parents=True, exist_ok=True)
    path = paddle_models.legacy("convs", folder)
    script = ROOT / "examples" / "paddle_trt" / "debug_engine.py"
    done = _ran(folder, [
        sys.executable, str(script), str(path), str(path.with_suffix(".pdiparams")),
        MODES.get("trt_fp16", "trt_fp16"), *([str(INSPECTOR)] if DRY else []),
    ])  # fmt: skip
    said = [line.split()[0] for line in done.stdout.splitlines() if "compared, first mismatch" in line]
    return _checked(
        {"status": done.returncode, "stdout": done.stdout[-1500:], "stderr": done.stderr[-1000:]},
        {"all, section, shipped and fused": said == ["all", "section", "shipped", "fused"]},
    )


def dynamic(folder: Path) -> dict[str, Any]:
    shapes = {which: f"x:[{batch},3,16,16]" for which, batch in (("min", 1), ("opt", 2), ("max", 4))}
    extra = [part for which, text in shapes.items() for part in (f"--{which}_shapes", text)]
    return _reported(_compare(folder, "cnn", "trt_fp32", "--use_dynamic_shape", "1", *([] if DRY else extra), *ROWS))


def calibration(folder: Path) -> dict[str, Any]:
    """Convolutions only: with the static shape that calibration needs, Paddle gives TensorRT no matrix product."""
    result = _compare(
        folder, "convs", "trt_int8", "--atol", "0.1", "--rtol", "0.1", "--option", "mark_all=False", _cache(folder)
    )
    result["tables"] = sorted(path.name for path in (folder / "cache").glob("trt_calib*"))
    return _checked(
        result,
        {
            "the output is compared": bool(result.get("paired")),
            "layers ran in INT8": re.search(r"ran in: .*\d INT8", str(result.get("target notes"))) is not None,
            "says that it calibrated": "calibrated int8" in str(result.get("target notes")),
        },
    )


def calibration_outside(folder: Path) -> dict[str, Any]:
    """With a fully connected layer: one line that says why it stays outside, and what to do."""
    result = _compare(folder, "cnn", "trt_int8", "--option", "mark_all=False")
    return _checked(result, {"refused in one line": result["status"] == 2 and "1x1 conv" in result.get("stderr", "")})


def calibration_refused(folder: Path) -> dict[str, Any]:
    """The combination on which Paddle aborts: must end with status 2 and one line, not with a crash."""
    words = ("--use_dynamic_shape", "1", "--option", "collect_shape_range=True", "--quiet")
    return _refused(_compare(folder, "cnn", "trt_int8", *words))


def bf16_refused(folder: Path) -> dict[str, Any]:
    """TensorRT 8.5 has no bfloat16."""
    return _refused(_compare(folder, "cnn", "trt_bf16", "--quiet"))


def disabled_ops(folder: Path) -> dict[str, Any]:
    """An operator that is kept out of TensorRT runs on Paddle's own kernels: refused on a card without code."""
    result = _compare(folder, "cnn", "trt_fp32", "--option", "disable_tensorrt_ops=['pool2d']")
    refused = result["status"] == 2 and "pool2d" in result.get("stderr", "")
    return _checked(result, {"built in parts, and refused in one line for the card": refused})


def ladder(folder: Path) -> dict[str, Any]:
    """The same fault: the GPU stages cannot run on this card, TensorRT in FP32 passes, in FP16 it fails."""
    import paddle_models

    folder.mkdir(parents=True, exist_ok=True)
    path = paddle_models.legacy("convs", folder, change=_overflow)
    done = _ran(folder, [
        sys.executable, "-m", "precision_debug", "ladder", "--model_file", str(path), "--run_mode",
        MODES.get("trt_fp16", "trt_fp16"), "--input_shapes", "x:[2,3,32,32]", "--atol", "0.5", "--rtol", "1e-2",
        "--output", str(folder / "ladder.json"),
    ])  # fmt: skip
    stages = re.findall(r"^(pass|FAIL|not run)\s+.*?\((\w+)", done.stdout, re.MULTILINE)
    return _checked(
        {"status": done.returncode, "stdout": done.stdout[-3000:], "stderr": done.stderr[-1000:]},
        {
            "TensorRT in FP32 passes, in FP16 fails": {("pass", "trt_fp32"), ("FAIL", "trt_fp16")} <= set(stages),
            "says why operators are not bisected": "cannot be switched off here" in done.stdout,
        },
    )


def mobilenet_fp16_unmarked(folder: Path) -> dict[str, Any]:
    """The engine to deploy, which takes minutes to build: it is kept for the two steps below."""
    return _mobilenet(folder, "mark_all=False")


def mobilenet_fp16_fused(folder: Path) -> dict[str, Any]:
    return _mobilenet(folder, "fused_only=True")


def mobilenet_fp16(folder: Path) -> dict[str, Any]:
    return _mobilenet(folder)


def _mobilenet(folder: Path, *options: str) -> dict[str, Any]:
    """One engine a step, as long as they run one after the other: beside each other each builds two, as Paddle has no
    timing cache. Engines of other marks have other files; weights and inputs are the same in all three."""
    there = bool(list(_ENGINES.glob("trt_serialized_*")))
    more = [word for option in (*options, "use_static=True", f"cache_dir={str(_ENGINES)!r}") for word in ("--option",
            option)]  # fmt: skip
    bounds = ("--atol", "1e-2", "--rtol", "1e-2")
    result = _reported(_compare(folder, "mobilenet_v3", "trt_fp16", *bounds, *more, *ROWS))
    if there and "wrote no file" in result.get("stderr", ""):  # a Paddle that tells of no layers of what it loads
        more[more.index("use_static=True")] = "use_static=False"
        result = {**_reported(_compare(folder, "mobilenet_v3", "trt_fp16", *bounds, *more, *ROWS)), "loaded": False}
    result["engine to deploy"] = "there before" if there else "built"
    result["seconds of builds"] = [note for note in result.get("target notes") or () if "TensorRT built" in str(note)]
    return result


def section(folder: Path) -> dict[str, Any]:
    """Marks of the user's own: nine tensors in the middle of ResNet-18."""
    return _reported(_compare(
        folder, "resnet18", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2",
        "--marks_between", "relu_3.tmp_0", "relu_5.tmp_0", *ROWS,
    ))  # fmt: skip


def cached(folder: Path) -> dict[str, Any]:
    """Inspector files and engines in a folder of the user's, as the example does; the next command loads the engine."""

    def compared() -> dict[str, Any]:
        return _compare(
            folder, "cnn", "trt_fp32", "--option", "mark_all=False", _cache(folder), "--option", "use_static=True",
            *ROWS,
        )  # fmt: skip

    def engines() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (folder / "cache").glob("trt_serialized_*")}

    result = compared()
    before = engines()
    (folder / "output.json").unlink(missing_ok=True)  # what is read below is the second command's
    result["cache"] = found = sorted(path.name for path in (folder / "cache").glob("*"))
    again = compared()
    result["again"] = {key: again.get(key) for key in ("status", "wall", "paired", "target notes", "stderr")}
    return _checked(
        result,
        {
            "an inspector file and an engine": {name.rpartition("_")[0] for name in found}
            >= {"engine_info", "trt_serialized"},
            "the next command loads that engine": bool(before) and before == engines() and again["status"] in (0, 1),
            "and knows its layers": " wrote no file" not in str(again.get("target notes", " wrote no file")),
        },
    )


def unmarked(folder: Path) -> dict[str, Any]:
    return _reported(_compare(folder, "cnn", "trt_fp16", "--option", "mark_all=False", *ROWS))


STEPS = {
    step.__name__: step
    for step in (
        resnet_fp32, fault, kept_overflow, encoder_fused, encoder_int8, calibration, resnet_fp16_fused, encoder_fp16,
        disabled_ops, ladder, resnet_fp16, example,
        dynamic, cached, resnet_fault, section, gpu_fp32, unmarked, resnet_tf32, encoder_collected,
        mobilenet_fp16_unmarked, mobilenet_fp16, mobilenet_fp16_fused,
        calibration_outside, calibration_refused, bf16_refused, machine, fatbin, inspector,
    )
}  # fmt: skip


def _cache(folder: Path) -> str:
    return f"--option=cache_dir={str(folder / 'cache')!r}"


def _fifty() -> list[str]:
    """The tensors that the marked engine of the recorded run computes, sorted."""
    from precision_debug_paddle.engine.tensorrt import list_fused_names

    from precision_debug.inspector import read_inspector

    return sorted(list_fused_names(read_inspector(INSPECTOR)))


def _row(folder: Path, name: str) -> dict[str, Any]:
    report = folder / "output.json"
    rows = json.loads(report.read_text())["rows"] if report.exists() else []
    return next((dict(row) for row in rows if row["name"] == name), {})


def _counted(result: dict[str, Any], precision: str) -> int:
    return int(result.get("precisions", {}).get(precision, 0))


def _checked(result: dict[str, Any], checks: dict[str, bool]) -> dict[str, Any]:
    if DRY:  # the CPU has no such engine, layers and precisions
        checks = {"a command that ends with a report": result.get("status", 0) in (0, 1)}
    return {"checks": checks, **result}


def _reported(result: dict[str, Any]) -> dict[str, Any]:
    """A comparison from which nothing more is asked than a report with rows that were compared."""
    good = result["status"] in (0, 1) and bool(result.get("paired"))
    return _checked(result, {"a report, with tensors compared": good})


def _refused(result: dict[str, Any]) -> dict[str, Any]:
    lines = result.get("stderr", "").splitlines()
    good = result["status"] == 2 and len(lines) == 1
    if DRY and not good:  # what TensorRT would refuse, the CPU may run
        return _reported(result)
    return {"checks": {"refused with status 2 and one line": good}, **result}


def _environment(folder: Path) -> dict[str, str]:
    plugin = folder / "plugin" / "paddle_entry-0.dist-info"
    plugin.mkdir(parents=True, exist_ok=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: paddle_entry\nVersion: 0\n")
    (plugin / "entry_points.txt").write_text(
        "[precision_debug.backends]\npaddle = precision_debug_paddle:PaddleBackend\n"
    )
    paths = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests"), str(plugin.parent)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]), "COLUMNS": "200"}


def _python(folder: Path, code: str) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=_environment(folder), timeout=240,
        check=False,
    )  # fmt: skip
    (folder / "log.txt").write_text(done.stdout + done.stderr)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[7:])
    return {"status": done.returncode, "last words": (done.stdout + done.stderr)[-1500:]}


def _ran(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command; what it says is in log.txt and stderr.txt while it runs, so that one that is stopped is told of.

    Raises TimeoutError with its last words."""
    with (folder / "log.txt").open("w") as out, (folder / "stderr.txt").open("w") as err:
        out.write(" ".join(command) + "\n")
        out.flush()
        try:
            status = subprocess.run(
                command, stdout=out, stderr=err, env=_environment(folder), timeout=_LIMIT, cwd=folder, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
    said = [(folder / name).read_text(errors="replace") for name in ("log.txt", "stderr.txt")]
    if status is None:
        lines = [line for text in said for line in text.splitlines()[-3:]]
        raise TimeoutError(f"over {_LIMIT:.0f} s; at last: " + " | ".join(lines)) from None
    return subprocess.CompletedProcess(command, status, said[0].partition("\n")[2], said[1])


def _compare(
    folder: Path, name: str, mode: str, *options: str, change: Any = None, batch: int = 2
) -> dict[str, Any]:  # fmt: skip
    import paddle_models

    folder.mkdir(parents=True, exist_ok=True)
    path = paddle_models.legacy(name, folder, change=change)
    import numpy as np

    np.savez(folder / "feeds.npz", **paddle_models.feeds(name, batch))
    command = [
        sys.executable, "-m", "precision_debug", "--model_file", str(path),
        "--params_file", str(path.with_suffix(".pdiparams")), "--run_mode", MODES.get(mode, mode),
        "--inputs", str(folder / "feeds.npz"), "--output", str(folder / "output.xlsx"),
        "--output", str(folder / "output.json"), *(_without_settings(options) if DRY else options),
    ]  # fmt: skip
    begun = time.time()
    done = _ran(folder, command)
    path.with_suffix(".pdiparams").unlink(missing_ok=True)
    result: dict[str, Any] = {"status": done.returncode, "wall": round(time.time() - begun, 1)}
    if done.stderr.strip():
        result["stderr"] = done.stderr.strip()[-1200:]
    report = folder / "output.json"
    if report.exists():
        result.update(_summary(json.loads(report.read_text())))
    return result


def _without_settings(options: Sequence[str]) -> list[str]:
    """Options without those that are TensorRT's alone, which a mode of the CPU refuses."""
    words, left = iter(options), []
    for word in words:
        if word in ("--option", "--use_dynamic_shape"):
            next(words)
        elif not word.startswith("--option="):
            left.append(word)
    return left


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
        "largest relative L2": max((_relative(row["comparison"].get("sqnr_db")) for row in compared), default=None),
        "paired": [row["name"] for row in compared],
        "rows with a fused layer": sum(1 for row in compared if (row.get("extra") or {}).get("Fused Layer")),
        "unmatched": [row["name"] for row in rows if row["status"] == "unmatched"][:20],
        "reasons": dict(collections.Counter(row.get("reason", "") for row in rows if row["status"] != "pass")),
        "precisions": dict(collections.Counter((row.get("extra") or {}).get("Real Precision", "") for row in compared)),
        "baseline notes": report["baseline"].get("notes"),
        "target notes": report["target"].get("notes"),
        "versions": report["target"].get("versions"),
    }


def _relative(sqnr_db: Any) -> float:
    """Relative L2 error of a signal-to-noise ratio; one that is not finite says "equal" or "worthless"."""
    if isinstance(sqnr_db, (int, float)):
        return float(10 ** (-sqnr_db / 20))
    return 0.0 if sqnr_db == {"$float": "inf"} else float("inf")


def _finite(row: dict[str, Any]) -> bool:
    return isinstance(row["comparison"].get("max_abs"), (int, float))


if __name__ == "__main__":
    sys.exit(main())
