"""Every TensorRT mode on small models, without the pipeline: does the backend run here, and what does it say?

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/tensorrt_smoke.py

Writes $OUT/smoke.json (one entry a case: numbers against ONNX Runtime, notes, columns), inspector files, and logs. Each
case runs in a process of its own; the whole takes at most about seven minutes (--seconds), later cases are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests"), str(ROOT / "examples" / "resnet")]
OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))

# model, mode, options; the stubbed cuBLAS and cuDNN of the packed environment must not be used
SOURCES = {"tactic_sources": "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS"}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("residual", "trt_fp32", {"verbose": True}),
    ("residual", "trt_tf32", {}),
    ("residual", "trt_fp16", {"verbose": True}),
    ("residual", "trt_fp16", {"fused_only": True}),
    ("residual", "trt_int8", {}),
    ("residual", "trt_best", {"fused_only": True}),
    (
        "residual_dynamic",
        "trt_fp16",
        {"min_shapes": {"image": (1, 3, 32, 32)}, "max_shapes": {"image": (8, 3, 32, 32)}},
    ),
    ("quantised", "trt_int8", {}),
    ("encoder", "trt_fp16", {}),
    ("encoder17", "trt_fp16", {}),
    ("loop", "trt_fp16", {}),
    ("branch", "trt_fp32", {}),
    ("non_zero", "trt_fp16", {}),
    ("custom_operator", "trt_fp16", {}),
    ("residual", "trt_bf16", {}),
    ("residual", "trt_fp16", {"layer_precisions": ["fc:float32", "conv2:float32"], "precision_constraints": "obey"}),
    (
        "residual",
        "trt_fp16",
        {"save_tactics": "tactics.json", "timing_cache": "timing.cache", "save_engine": "m.engine"},
    ),
    ("residual", "trt_fp16", {"load_tactics": "tactics.json"}),
    ("residual", "trt_fp16", {"timing_cache": "timing.cache"}),
    ("m.engine", "trt_engine", {}),
    ("residual", "trt_int8", {"memory_budget": 300_000}),
    ("resnet18", "trt_fp32", {"fused_only": True}),
    ("resnet18", "trt_fp16", {"fused_only": True}),
    ("resnet18", "trt_fp16", {}),
]


def make(name: str) -> tuple[Any, dict[str, Any]]:
    """A model and its feeds."""
    import numpy as np
    import tensorrt_models as models

    rng = np.random.default_rng(7)

    def uniform(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    if name == "resnet18":
        from build import build

        return build(18, batch=1, image=96), {"image": uniform(1, 3, 96, 96)}
    if name.startswith(("residual", "m.engine")):
        return models.residual("N" if "dynamic" in name else 2), {"image": uniform(2, 3, 32, 32)}
    if name.startswith("encoder"):
        return models.encoder(decomposed=name == "encoder"), {"embeddings": uniform(1, 32, 64)}
    if name == "quantised":
        return models.quantised(), {"image": uniform(2, 3, 16, 16)}
    if name == "branch":
        return models.branch(), {"x": uniform(4, 8), "yes": np.array(True)}
    return getattr(models, name)(), {"x": uniform(4, 8)}


def truth(model: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    """Every tensor by plain ONNX Runtime without fusion."""
    import onnx
    import onnxruntime as ort

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    named = {item.name for item in copy.graph.output}
    for node in copy.graph.node:
        for output in node.output:
            if output and output not in named:
                copy.graph.output.append(onnx.helper.make_empty_tensor_value_info(output))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def run_case(place: int) -> dict[str, Any]:
    import numpy as np
    import onnx
    from precision_debug_tensorrt import TensorRTBackend
    from precision_debug_tensorrt.engine import messages

    from precision_debug.records import ModelFiles, SessionSpec

    name, mode, given = CASES[place]
    options = {**SOURCES, **given, "save_inspector": str(OUT / f"case{place:02d}_{name}_{mode}.json")}
    for key in ("save_tactics", "load_tactics", "timing_cache", "save_engine"):
        if key in options:
            options[key] = str(OUT / options[key])
    if options.pop("verbose", False):
        log = gzip.open(OUT / f"case{place:02d}_{name}_{mode}.log.gz", "wt")  # noqa: SIM115
        take, count = messages.Messages.take, [0]

        def keep(self: Any, severity: str, text: str) -> None:
            count[0] += 1
            if count[0] < 40_000 and ("Tactic" not in text or count[0] % 50 == 0):
                log.write(f"{severity}: {text[:600]}\n")
            take(self, severity, text)

        messages.Messages.take = keep
    model, feeds = make(name)
    path = OUT / "m.engine" if name == "m.engine" else OUT / f"case{place:02d}.onnx"
    if name != "m.engine":
        onnx.save(model, path)
    backend = TensorRTBackend()
    result: dict[str, Any] = {"availability": str(backend.availability(mode))}
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, options=options)
    begun = time.monotonic()
    result["inputs"] = [str(item) for item in backend.inputs(spec)]
    session = backend.open(spec, [feeds])
    result["open_seconds"] = round(time.monotonic() - begun, 1)
    seen: dict[str, Any] = {}
    order: list[str] = []

    def hook(op_type: str, tensor: str, value: Any, /) -> None:
        order.append(tensor)
        seen[tensor] = np.array(value)

    plain = session.run(feeds)
    outputs = session.run(feeds, hook)
    result["run_seconds"] = round(time.monotonic() - begun, 1)
    result["same_with_hook"] = all(np.array_equal(plain[key], outputs[key], equal_nan=True) for key in plain)
    try:
        wanted = truth(model, feeds)
    except Exception as error:
        wanted, result["truth"] = {}, f"{type(error).__name__}: {error}"
    rows = {}
    for meta in session.tensors:
        row: dict[str, Any] = {"op": meta.op_type, "extra": dict(meta.extra)}
        if meta.unseen:
            row["unseen"] = meta.unseen
        if meta.name in seen and meta.name in wanted:
            a, b = np.asarray(wanted[meta.name]), seen[meta.name]
            row["shapes"] = [list(a.shape), list(b.shape)]
            if a.shape == b.shape:
                gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
                row["max_abs"] = float(gap.max(initial=0))
                row["scale"] = float(np.abs(a).max(initial=0))
        rows[meta.name] = row
    result |= {
        "tensors": rows, "order": order, "notes": list(session.notes), "versions": dict(session.versions),
        "layers": len(session.layers), "not_in_truth": sorted(set(seen) - set(wanted))[:20],
    }  # fmt: skip
    session.close()
    path.unlink() if name != "m.engine" else None
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=int)
    parser.add_argument("--seconds", type=float, default=430)
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if args.case is not None:
        try:
            result = run_case(args.case)
        except BaseException as error:
            result = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-3000:]}
        (OUT / f"result{args.case:02d}.json").write_text(json.dumps(result))
        return
    begun, results = time.monotonic(), []
    for place, (name, mode, options) in enumerate(CASES):
        entry: dict[str, Any] = {"case": place, "model": name, "mode": mode, "options": options}
        left = args.seconds - (time.monotonic() - begun)
        if left < 5:
            entry["error"] = "left out: no time"
        else:
            started = time.monotonic()
            try:
                done = subprocess.run(
                    [sys.executable, __file__, "--case", str(place)], timeout=min(left, 150), check=False,
                    capture_output=True, text=True, env={**os.environ, "OUT": str(OUT)},
                )  # fmt: skip
                entry["status"], entry["stderr"] = done.returncode, done.stderr[-1500:]
            except subprocess.TimeoutExpired:
                entry["error"] = "ran out of time"
            file = OUT / f"result{place:02d}.json"
            if file.exists():
                entry |= json.loads(file.read_text())
                file.unlink()
            entry["seconds"] = round(time.monotonic() - started, 1)
        results.append(entry)
        (OUT / "smoke.json").write_text(json.dumps(results, indent=1))
        errors = [row["max_abs"] for row in entry.get("tensors", {}).values() if "max_abs" in row]
        said = entry.get("error") or f"{len(errors)} compared, worst {max(errors, default=float('nan')):.3g}"
        line = f"{place} {name} {mode} {options} {said} {entry.get('seconds', 0)} s"
        print(line, flush=True)
        with (OUT / "smoke.txt").open("a") as log:
            log.write(f"{line}\n")


if __name__ == "__main__":
    main()
