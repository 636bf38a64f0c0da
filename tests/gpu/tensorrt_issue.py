"""What the TensorRT backend shows on real hardware: reports of models, constraints, fusion.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/tensorrt_issue.py --part PART

PART is models, constraints, fused, fused_resnet, tests, contract, regions or commands; each takes at most about 10
minutes (--seconds). A line PASS or FAIL a case; the exit status is 1 where one fails. Writes $OUT/PART.json, a report
(.xlsx and .json) for each comparison, and engine inspector files. A part runs in a process of its own, so that its
builds share what was timed; where it dies, another one goes on with the next case.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkout import ROOT

EXAMPLES = ROOT / "examples"
OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))

SOURCES = "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS"  # the packed environment's cuBLAS and cuDNN are stubs


def load(path: Path) -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location(f"_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def model_and_feeds(name: str) -> tuple[Any, list[dict[str, Any]], dict[str, Any]]:
    """A model, sample sets, and options."""
    import numpy as np
    import tensorrt_models as models

    rng = np.random.default_rng(11)

    def sets(key: str, *shape: int, low: float = -1, high: float = 1, count: int = 4) -> list[dict[str, Any]]:
        return [{key: rng.uniform(low, high, shape).astype(np.float32)} for _ in range(count)]

    if name == "resnet18":
        return load(EXAMPLES / "resnet" / "build.py").build(18, batch=1, image=112), sets("image", 1, 3, 112, 112), {}
    if name == "encoder":
        return models.encoder(layers=1), sets("embeddings", 1, 32, 64), {}
    if name == "wide":  # large enough for FP16 to be worth it
        return models.encoder(layers=1, length=128, width=512, heads=8), sets("embeddings", 1, 128, 512), {}
    if name == "encoder17":
        return models.encoder(layers=1, decomposed=False), sets("embeddings", 1, 32, 64), {}
    if name == "dynamic":
        shapes = {which: {"image": (batch, 3, 32, 32)} for which, batch in
                  (("min_shapes", 1), ("opt_shapes", 4), ("max_shapes", 8))}  # fmt: skip
        return models.residual("N"), sets("image", 3, 3, 32, 32), shapes
    if name == "needs_constraints":
        feeds = sets("x", 1, 256, 256, low=1, high=2, count=1)
        return load(EXAMPLES / "needs_constraints" / "build.py").build(), feeds, {}
    if name == "div_zero":
        return load(EXAMPLES / "div_zero" / "build.py").build(), sets("x", 1, 8, low=1, high=2, count=1), {}
    raise KeyError(name)


def compared(
    label: str, model: str, mode: str, *, baseline: str = "", script: str = "", **options: Any
) -> dict[str, Any]:
    """One comparison through the whole pipeline, and what a reader would want to know of it."""
    import onnx
    from precision_debug_tensorrt.make import Maker

    from precision_debug import registry
    from precision_debug.api import compare

    registry.BUILT_IN.setdefault("tensorrt", "precision_debug_tensorrt:TensorRTBackend")
    proto, feeds, own = model_and_feeds(model)
    path = model_file = str(OUT / f"{label}.onnx")
    onnx.save(proto, path)
    if script:  # the same network, so that the ONNX model is its baseline
        model_file, options["baseline_model"] = script, path
    for key in ("timing_cache", "save_engine"):
        if key in options:
            options[key] = str(OUT / options[key])
    engine = {"tactic_sources": SOURCES, "save_inspector": str(OUT / f"{label}_engine.json")}
    options = {**(engine if mode.startswith("trt") else {}), **own, **options}
    builds: list[str] = []
    plain = Maker._build

    def counted(self: Any, marks: Any, *rest: Any) -> Any:
        begun = time.monotonic()
        try:
            return plain(self, marks, *rest)
        finally:  # printed at once too, so that a case that is cut off tells where its seconds went
            builds.append(f"{len(marks)} marks {time.monotonic() - begun:.1f} s")
            print(f"   {label}: {builds[-1]}", flush=True)

    Maker._build = counted  # type: ignore[method-assign]
    try:
        report = compare(
            model_file, run_mode=mode, baseline=baseline, inputs=feeds,
            output=[OUT / f"{label}.xlsx", OUT / f"{label}.json"],
            atol=1e-3, rtol=1e-3, **options,
        )  # fmt: skip
    finally:
        Maker._build = plain  # type: ignore[method-assign]
    Path(path).unlink(missing_ok=True)
    assert any(row.comparison is not None for row in report.outputs), f"no output was compared: {report.verdict}"
    rows = {}
    for row in report.rows:
        c = row.comparison
        rows[row.name] = {
            "status": str(row.status), "op": row.op_type, "reason": row.reason, "paired_by": row.paired_by,
            "extra": dict(row.extra),
        }  # fmt: skip
        if c is not None:
            rows[row.name] |= {
                "max_abs": c.max_abs, "rel_l2": row.relative_l2,
                "base": [c.base.min, c.base.max, c.base.nan, c.base.inf],
                "target": [c.target.min, c.target.max, c.target.nan, c.target.inf],
            }  # fmt: skip
    first = report.first_mismatch
    outputs = [row.name for row in report.outputs]
    return {
        "verdict": str(report.verdict), "first_mismatch": first.name if first else "", "outputs": outputs,
        "seconds_all": round(report.seconds, 1), "builds": builds, "notes": [*report.notes, *report.target.notes],
        "versions": dict(report.target.versions), "rows": rows, "counts": {str(k): v for k, v in report.counts.items()},
    }  # fmt: skip


def pytest_run(file: str) -> dict[str, Any]:
    """The backend's tests that need the hardware, of one file."""
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT), str(ROOT / "backends"), str(ROOT / "tests")]
    paths.append(str(ROOT / "tests" / "gpu"))
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", "-p", "shown_at_once"]
    command += ["-s", "-o", "filterwarnings=default", f"tests/{file}"]
    log = OUT / f"{file}.txt"
    status: int | str
    with log.open("w") as stream:
        try:
            status = subprocess.run(
                command, cwd=ROOT, timeout=600, stdout=stream, stderr=subprocess.STDOUT, check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            status = "ran out of time"
    text = log.read_text()
    last = text.strip().rpartition("\n")[2].strip("= ")
    return {"status": status, "summary": f"{status}: {last}", "tail": text[-3000:]}


def save_model(name: str, path: Path) -> None:
    """Write one of the models of ``model_and_feeds``."""
    import onnx

    onnx.save(model_and_feeds(name)[0], path)


def in_region(label: str, mode: str, model: str = "encoder", **options: Any) -> dict[str, Any]:
    """A comparison with the builder's times of the regions kept."""
    import tensorrt_cases as cases

    return cases.logged(OUT, label, lambda: compared(label, model, mode, **options))


def case(name: str, *arguments: Any) -> Callable[[], dict[str, Any]]:
    """A case of tensorrt_cases, imported when it runs."""

    def run() -> dict[str, Any]:
        import tensorrt_cases

        found: dict[str, Any] = getattr(tensorrt_cases, name)(OUT, *arguments)
        return found

    return run


QUICK = {"optimization_level": 1}  # what kernels are fastest is not asked here, and INT8 takes minutes to time them
ALL_HALF = {"layer_precisions": {"*": "float16"}}
CONSTRAINED = {"Add": "float16", "Sub": "float16"}
NEEDS = EXAMPLES / "needs_constraints"
MODES = {
    "dynamic": ("trt_fp32", "trt_tf32", "trt_fp16", "trt_int8"),
    "encoder": ("trt_int8",),
    "encoder17": ("trt_int8",),
}
"""Beside what "regions" has of the encoders; ResNets are in tensorrt_builds.py."""
PARTS: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {
    "models": {
        f"{model}_{mode}": (lambda model=model, mode=mode: compared(f"{model}_{mode}", model, mode, **QUICK))
        for model, modes in MODES.items()
        for mode in modes
    },
    "constraints": {
        "plain_fp16": lambda: compared("plain_fp16", "needs_constraints", "trt_fp16"),
        "plain_fp32": lambda: compared("plain_fp32", "needs_constraints", "trt_fp32"),
        **{
            f"option_{how}": (
                lambda how=how: compared(
                    f"option_{how}", "needs_constraints", "trt_fp16", layer_precisions=CONSTRAINED,
                    precision_constraints=how,
                )
            )
            for how in ("none", "prefer", "obey")
        },
        "option_fp32_obey": lambda: compared(
            "option_fp32_obey", "needs_constraints", "trt_fp16",
            layer_precisions={"Add": "float32", "Sub": "float32"}, layer_output_types={"Add": "float32"},
            precision_constraints="obey",
        ),
        "option_mixed_obey": lambda: compared(
            "option_mixed_obey", "needs_constraints", "trt_fp16",
            layer_precisions={"Add": "float16", "Sub": "float32"}, precision_constraints="obey",
        ),
        **{
            f"script_{how}": (
                lambda how=how: compared(
                    f"script_{how}", "needs_constraints", "trt_fp16", network_script=str(NEEDS / "postprocess.py"),
                    precision_constraints=how,
                )
            )
            for how in ("none", "prefer", "obey")
        },
        **{
            f"builder_{how}": (
                lambda how=how: compared(
                    f"builder_{how}", "needs_constraints", "trt_fp16",
                    script=str(NEEDS / "network.py"), precision_constraints=how,
                )
            )
            for how in ("none", "prefer", "obey")
        },
        "div_zero_trt_fp32": lambda: compared("div_zero_trt_fp32", "div_zero", "trt_fp32"),
        "div_zero_trt_fp16": lambda: compared("div_zero_trt_fp16", "div_zero", "trt_fp16"),
        "div_zero_ort": lambda: compared("div_zero_ort", "div_zero", "ort_opt"),
    },
    "tests": {"tests": lambda: pytest_run("test_tensorrt_hardware.py")},
    "contract": {"contract": lambda: pytest_run("test_tensorrt_contract.py")},
    "regions": {
        "encoder_tf32": lambda: in_region("encoder_tf32", "trt_tf32"),
        "encoder_fp16": lambda: in_region("encoder_fp16", "trt_fp16"),
        "encoder_fp16_obey": lambda: in_region(
            "encoder_fp16_obey", "trt_fp16", precision_constraints="obey", **ALL_HALF
        ),
        "encoder_fp16_prefer": lambda: in_region(
            "encoder_fp16_prefer", "trt_fp16", precision_constraints="prefer", **ALL_HALF
        ),
        "wide_tf32": lambda: in_region("wide_tf32", "trt_tf32", "wide"),
        "wide_fp16": lambda: in_region("wide_fp16", "trt_fp16", "wide"),
        "wide_fp32": lambda: in_region("wide_fp32", "trt_fp32", "wide"),
        "wide_fp16_obey": lambda: in_region(
            "wide_fp16_obey", "trt_fp16", "wide", precision_constraints="obey", **ALL_HALF
        ),
        "encoder17_fp16": lambda: in_region("encoder17_fp16", "trt_fp16", "encoder17"),
        "encoder17_tf32": lambda: in_region("encoder17_tf32", "trt_tf32", "encoder17"),
        "encoder17_fp32": lambda: in_region("encoder17_fp32", "trt_fp32", "encoder17"),
    },
    "commands": {
        "validated": case("validated", save_model),
        "refused": case("refused"),
        "built_engine": case("built_engine", save_model),
    },
    "fused": {
        **{
            f"fused_only_{model}_{mode}": (
                lambda model=model, mode=mode: compared(
                    f"fused_only_{model}_{mode}", model, mode, fused_only=True, **QUICK
                )
            )
            for model, mode in (
                ("encoder", "trt_fp16"), ("dynamic", "trt_int8"), ("dynamic", "trt_tf32"), ("dynamic", "trt_fp32"),
            )
        },
    },
    "fused_resnet": {"fused_only_fp16": lambda: compared("fused_only_fp16", "resnet18", "trt_fp16", fused_only=True)},
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=sorted(PARTS), required=True)
    parser.add_argument("--cases", nargs="+")
    parser.add_argument("--seconds", type=float, default=620)
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if args.cases:
        run_cases(args.part, args.cases)
        return 0
    begun, results, waiting = time.monotonic(), {}, list(PARTS[args.part])
    while waiting:
        left = args.seconds - (time.monotonic() - begun)
        why = "left out: no time"
        stderr = ""
        if left > 10:
            try:
                done = subprocess.run(
                    [sys.executable, __file__, "--part", args.part, "--cases", *waiting], timeout=left, check=False,
                    stderr=subprocess.PIPE, text=True, env={**os.environ, "OUT": str(OUT)},
                )  # fmt: skip
                why, stderr = f"the process died with status {done.returncode}", done.stderr[-1500:]
            except subprocess.TimeoutExpired as error:
                why, stderr = "ran out of time", str(error.stderr or "")[-1500:]
        for name in list(waiting):
            file = OUT / f"_{name}.json"
            if not file.exists():
                results[name] = {"error": why, "stderr": stderr}
                waiting.remove(name)
                break
            results[name] = json.loads(file.read_text())
            file.unlink()
            waiting.remove(name)
        (OUT / f"{args.part}.json").write_text(json.dumps(results, indent=1))
    (OUT / f"{args.part}.txt").write_text("".join(f"{name} {said(entry)}\n" for name, entry in results.items()))
    for name, entry in results.items():
        print(f"{'PASS' if ran(entry) else 'FAIL'}  {name}: {said(entry)}", flush=True)
    return int(not all(map(ran, results.values())))


def ran(entry: dict[str, Any]) -> bool:
    """Whether a case came to its end; a file of tests, whether they pass and some of them ran."""
    passed = entry.get("status", 0) == 0 and ("tail" not in entry or " passed" in entry["tail"])
    return "error" not in entry and passed


def said(entry: dict[str, Any]) -> str:
    text = entry.get("error") or entry.get("verdict") or entry.get("summary") or entry.get("tail", "")[-300:]
    return f"{text} {entry.get('seconds', '')} s"


def run_cases(part: str, names: list[str]) -> None:
    from shown_at_once import keep_kernels

    if part not in {"tests", "contract", "commands"}:
        try:
            keep_kernels()
        except Exception as error:
            print(f"no kernels are kept: {error}", flush=True)
    for name in names:
        begun = time.monotonic()
        try:
            result = PARTS[part][name]()
        except BaseException as error:
            result = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-3000:]}
        result["seconds"] = round(time.monotonic() - begun, 1)
        (OUT / f"_{name}.json").write_text(json.dumps(result, default=str))
        print(name, said(result), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
