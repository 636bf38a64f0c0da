"""Realistic reports for the tests of everything that reads one; no model runs."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from typing import Any

from precision_debug.numbers.born import make_infinite
from precision_debug.records import Comparison, Introduced, ModelFiles, Row, RunSpec, Status, TensorStats
from precision_debug.report.model import InputInfo, Report, Side
from precision_debug.testing.thresholds import Thresholds, add_test_claims, describe_complaint

__all__ = ["make_comparison", "make_report", "make_row", "make_stats"]

_BLOCK = ("Conv", "BatchNormalization", "Relu", "Conv", "BatchNormalization", "Add", "Relu")
_FUSED = {"BatchNormalization": "folded into the convolution before it"}


def find_complaint(report: Report, thresholds: Thresholds, golden: Report | None = None) -> str:
    return describe_complaint(add_test_claims(report, thresholds, golden, must_match=True), golden)


def make_stats(**changes: Any) -> TensorStats:
    """A healthy float32 activation; ``changes`` override."""
    values: dict[str, Any] = {
        "dtype": "float32", "shape": (8, 64, 56, 56), "elements": 1605632,
        "min": -2.5, "max": 3.25, "mean": 0.125, "rms": 0.9,
    }  # fmt: skip
    return TensorStats(**{**values, **changes})


def make_comparison(error: float = 1e-3, **changes: Any) -> Comparison:
    """A pair whose relative L2 error is ``error``; every other number follows from it plausibly."""
    base = changes.pop("base", None) or make_stats()
    target = changes.pop("target", None) or dataclasses.replace(base, dtype="float16", nan=0, inf=0)
    rms = base.rms or 1.0
    rmse = error * rms
    mismatched = min(base.elements, 1 + int(base.elements * min(1.0, error * 20))) if error > 1e-3 else 0
    index = tuple(min(1, d - 1) for d in base.shape)
    values: dict[str, Any] = {
        "base": base, "target": target, "shapes_match": base.shape == target.shape,
        "mismatched": mismatched, "first_mismatch": index if mismatched else None,
        "max_abs": 6 * rmse, "max_abs_index": index, "max_rel": 40 * error, "max_rel_index": index,
        "mean_abs": 0.8 * rmse, "mean_rel": 2 * error, "share_rel_over_1pct": min(1.0, 5 * error),
        "rmse": rmse, "cosine_distance": error * error / 2,
        "sqnr_db": math.inf if error == 0 else -20 * math.log10(error),
        "abs_p50": 0.6 * rmse, "abs_p90": 1.6 * rmse, "abs_p99": 2.6 * rmse, "abs_p999": 4 * rmse,
        "required_atol": 6 * rmse, "required_rtol": 40 * error, "fp16_subnormal": 12, "identical": error == 0,
    }  # fmt: skip
    values["apart"] = abs(target.inf - base.inf) + abs(target.nan - base.nan)
    return make_infinite(Comparison(**{**values, **changes}))


def make_row(index: int = 0, error: float | None = 1e-3, **changes: Any) -> Row:
    """A row out of tolerance where ``error`` is above 1e-3, without a comparison where it is None."""
    values: dict[str, Any] = {
        "index": index, "op_type": "Conv", "name": f"/layer1/conv{index}/Conv_output_0",
        "node": f"/layer1/conv{index}/Conv",
    }  # fmt: skip
    if error is None:
        values |= {"status": Status.FUSED_AWAY, "reason": _FUSED["BatchNormalization"], "base": make_stats()}
    else:
        values |= {
            "status": Status.FAIL if error > 1e-3 else Status.PASS,
            "comparison": make_comparison(error),
            "target_name": values["name"], "target_op_type": "FusedConv", "paired_by": "exact", "error_growth": 1.1,
        }  # fmt: skip
    return Row(**{**values, **changes})


def make_report(rows: int = 20, seed: int = 0, *, extra: bool = False, **changes: Any) -> Report:
    """A residual network in int8 with every kind of row; the same for the same arguments."""
    values: dict[str, Any] = {
        "rows": tuple(_rows(rows, random.Random(seed), extra)),
        "spec": RunSpec(
            model=ModelFiles(model_file="models/resnet50.onnx"),
            run_mode="ort_int8",
            input_shapes={"x": (8, 3, 224, 224)},
            command="python -m precision_debug --model_file models/resnet50.onnx --run_mode ort_int8"
            " --input_shapes x:[8,3,224,224] --output output/output.xlsx",
        ),
        "baseline": Side(
            mode="ort_fp32", backend="onnxruntime", model="models/resnet50.onnx", precision="float32",
            versions={"onnxruntime": "1.31.1", "provider": "CPUExecutionProvider"}, tensors=rows, seconds=1.42,
        ),
        "target": Side(
            mode="ort_int8", backend="onnxruntime", model="models/resnet50.onnx", precision="int8",
            versions={"onnxruntime": "1.31.1", "provider": "CPUExecutionProvider"}, tensors=rows, seconds=0.97,
            notes=("Calibrated (MinMax) on the given input: 1 sample.",),
        ),
        "inputs": (
            InputInfo(
                name="x", dtype="float32", shape=(8, 3, 224, 224), sha256=hashlib.sha256(b"x").hexdigest(),
                min=-2.1179, max=2.64,
            ),
        ),
        "inputs_file": "output_inputs.npz",
        "inputs_source": "seeded random (seed 0)",
        "machine": {"precision_debug": "0.1.0", "python": "3.11.9", "platform": "Linux x86_64", "cores": "2"},
        "started": "2026-01-31T12:00:00+08:00",
        "seconds": 7.35,
        "scores": {"top-1 agreement": 0.9806, "top-1 accuracy, baseline": 0.9861, "top-1 accuracy, target": 0.9722},
    }  # fmt: skip
    return Report(**{**values, **changes})


def _rows(count: int, random_: random.Random, extra: bool) -> list[Row]:
    rows: list[Row] = []
    error = 2e-4
    for index in range(count):
        last = index == count - 1
        op_type = "Gemm" if last else _BLOCK[index % len(_BLOCK)]
        stage = 4 * index // count
        layer = f"/layer{stage + 1}/layer{stage + 1}.{index // 7}"
        node = "/fc/Gemm" if last else f"{layer}/{op_type.lower()}{index % 7}/{op_type}"
        name = "logits" if last else f"{node}_output_0"
        columns = {"Fused Layer": f"fused_{op_type.lower()}_{index}", "Real Precision": "int8"} if extra else {}
        common: dict[str, Any] = {
            "index": index, "op_type": op_type, "name": name, "node": node, "is_output": last, "extra": columns,
            "inputs": (rows[-1].name,) if rows else ("x",),
        }  # fmt: skip
        shape = (8, 1000) if last else (8, 64 << stage, 56 >> stage, 56 >> stage)
        low, high = random_.uniform(-9, -1), random_.uniform(1, 9)
        base = make_stats(shape=shape, elements=math.prod(shape), min=low, max=high)
        if op_type in _FUSED:
            rows.append(Row(**common, status=Status.FUSED_AWAY, reason=_FUSED[op_type], base=base))
            continue
        if index % 97 == 12:
            reason = "the engine gave its values in a blocked layout (NCHWc) that cannot be undone"
            rows.append(Row(**common, status=Status.NOT_COMPARED, reason=reason, base=base))
            continue
        if index % 61 == 16:
            common |= {"op_type": "QuantizeLinear", "name": f"{name}_QuantizeLinear_Output"}
            target = make_stats(dtype="int8", shape=shape, elements=math.prod(shape), min=-128.0, max=127.0)
            reason = "the baseline has no tensor of this name"
            rows.append(Row(**common, status=Status.UNMATCHED, reason=reason, target=target))
            continue
        if index % 41 == 22:
            tiny = make_stats(shape=shape, elements=math.prod(shape), rms=3e-5)
            numbers = make_comparison(0.25, base=tiny, mismatched=0)
            reason = "passes by atol 0.0001 alone, which exceeds its RMS 3e-05, with Rel L2 0.25"
            rows.append(Row(**common, status=Status.INCONCLUSIVE, reason=reason, comparison=numbers, paired_by="exact",
                            target_name=name, target_op_type=op_type))  # fmt: skip
            continue
        growth = random_.lognormvariate(0.02, 0.25) * (30 if index % 53 == 9 else 1)
        error = min(0.4, max(1e-5, error * min(growth, 3)))
        rows.append(_compared(common, base, error, growth, index))
    return rows


def _compared(common: dict[str, Any], base: TensorStats, error: float, growth: float, index: int) -> Row:
    numbers: dict[str, Any] = {"base": base}
    if index % 211 == 17:
        numbers["target"] = make_stats(shape=base.shape, elements=base.elements, nan=3, inf=17, max=65504.0)
        numbers |= dict.fromkeys(("max_abs", "max_rel", "required_atol", "required_rtol"), math.inf)
        numbers |= {"fp16_overflow": 20, "mismatched": 20, "first_mismatch": (0,) * len(base.shape)}
    comparison = make_comparison(error, **numbers)
    failed = error > 1e-3 or "target" in numbers
    return Row(
        **common, status=Status.FAIL if failed else Status.PASS, comparison=comparison, error_growth=growth,
        introduced=Introduced(
            name=common["name"], method="isolated", elements=100, rel_l2=1e-3, unit=1e-3, units=1.0, inherited=2e-3
        ),
        target_name=f"{common['name']}_DequantizeLinear_Output", target_op_type="DequantizeLinear",
        paired_by="graph metadata", view="dequantised",
        reason=f"{comparison.mismatched} elements are out of tolerance" if failed else "",
    )  # fmt: skip
