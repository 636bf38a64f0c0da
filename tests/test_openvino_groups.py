"""Weights of an IR in few bits, in groups and in channels: what is wrong in the target's is told by the constant."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_debug
from precision_debug.report.model import Verdict

openvino = pytest.importorskip("openvino", reason="openvino is not installed")

WIDE, GROUP = 64, 16
RANDOM = np.random.default_rng(0)
WEIGHTS = [(RANDOM.standard_normal((WIDE, WIDE)) / 8).astype(np.float32) for _ in range(3)]
X = np.random.default_rng(1).standard_normal((8, WIDE)).astype(np.float32)

TYPES = {"i4": 7, "u4": 15, "i8": 127, "u8": 255, "u2": 3, "f8e4m3": 448, "f8e5m2": 57344, "nf4": 1, "f4e2m1": 6}
"""By OpenVINO's name: the largest number."""


def _hold(weight: Any, kind: str, group: int, fault: str) -> tuple[Any, Any, Any]:
    """Return codes, zero points and scales, with a group's axis of its own in the middle; zero points of unsigned ones
    alone."""
    parts = weight.reshape(-1, group, weight.shape[1])
    largest = TYPES[kind]
    zero = np.zeros_like(parts[:, :1])
    if kind.startswith("u"):
        low, high = (np.minimum(parts.min(1, keepdims=True), 0), np.maximum(parts.max(1, keepdims=True), 0))
        scale = (high - low) / largest
        zero = np.rint(-low / scale)
        codes = np.clip(np.rint(parts / scale) + zero, 0, largest)
    else:
        scale = np.abs(parts).max(1, keepdims=True) / largest
        scale = scale * 6 if fault == "coarse" else scale
        codes = np.rint(parts / scale) if kind.startswith("i") else parts / scale
    place = (slice(-1, None), slice(None), slice(5, 9))
    scale, zero = scale.copy(), zero.copy()
    if fault == "scale":
        scale[place] *= 2.5
    elif fault == "one zero":
        zero[place] = np.where(zero[place] > largest / 2, zero[place] - 4, zero[place] + 4)
    elif fault == "one code":
        codes[-1, 3, 5] = largest if codes[-1, 3, 5] < largest / 2 else 0
    elif fault == "zero":
        zero[:] = (zero + 2) % (largest + 1) if kind.startswith("u") else 2
    elif fault == "codes":
        codes[place] = np.roll(codes[place], 5, 1)
    return codes, zero, scale.astype(np.float16)


def _make(path: Path, kind: str = "", fault: str = "", group: int = GROUP, *, turned: bool = False) -> Path:
    """Three products as an IR, the weight of the second in a type of few bits, as NNCF writes it."""
    from openvino import opset13

    h = x = opset13.parameter([8, WIDE], np.float32, name="x")
    x.output(0).set_names({"x"})
    for place, weight in enumerate(WEIGHTS):
        turn = turned and place == 1
        if kind and place == 1:
            codes, zero, scale = _hold(weight, kind, group, fault)
            if turn:
                codes, zero, scale = (one.transpose(2, 0, 1) for one in (codes, zero, scale))
            if group == WIDE:  # of channels: no axis more
                codes, zero, scale = (np.squeeze(one, 1 if turn else 0) for one in (codes, zero, scale))
            codes, zero, scale = map(np.ascontiguousarray, (codes, zero, scale))
            held = getattr(openvino.Type, kind)
            whole = opset13.constant(codes, dtype=held, name="w1")
            one = opset13.convert(whole, np.float16)
            if zero.any():
                offset = opset13.convert(opset13.constant(zero, dtype=held, name="w1/zero_point"), np.float16)
                one = opset13.subtract(one, offset, name="w1/zero_point/subtract")
            one = opset13.multiply(one, opset13.constant(scale, name="w1/scale"), name="w1/fq_weights_1")
            if group < WIDE:
                one = opset13.reshape(one, [WIDE, WIDE], False)
            constant = opset13.convert(one, np.float32, name="w1/fq_weights_1/convert")
        else:
            constant = opset13.constant(np.ascontiguousarray(weight.T) if turn else weight, name=f"w{place}")
        h = opset13.matmul(h, constant, False, turn, name=f"h{place}")
        h.output(0).set_names({f"h{place}"})
    openvino.save_model(openvino.Model([h], [x], "m"), str(path), compress_to_fp16=False)
    return path


def _compare(folder: Path, target: Path, *, turned: bool = False) -> Any:
    base = _make(folder / "base.xml", turned=turned)
    return precision_debug.compare(
        target, baseline_model=base, run_mode="ov_fp32", baseline="ov_fp32", inputs={"x": X}
    )  # fmt: skip


def _list_causes(report: Any) -> list[tuple[str, str]]:
    found = report.explanation.culprits if report.explanation is not None else ()
    return [(one.name, one.cause) for one in found]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("kind", "group"),
    [("i4", GROUP), ("u4", GROUP), ("u4", WIDE), ("i8", GROUP), ("f8e4m3", GROUP), ("nf4", GROUP), ("f4e2m1", GROUP)],
)
def test_a_weight_in_groups_that_was_rounded_well_is_as_expected(
    tmp_path: Path, kind: str, group: int, turned: bool
) -> None:
    report = _compare(tmp_path, _make(tmp_path / "held.xml", kind, "", group, turned=turned), turned=turned)
    assert (report.verdict, _list_causes(report)) == (Verdict.EXPECTED, [])


@pytest.mark.parametrize(
    ("kind", "group", "fault", "code"),
    [
        ("i4", GROUP, "scale", "scale"), ("u4", GROUP, "scale", "scale"), ("f8e4m3", GROUP, "scale", "scale"),
        ("nf4", GROUP, "scale", "scale"), ("f4e2m1", GROUP, "scale", "scale"), ("nf4", GROUP, "codes", "files_differ"),
        ("u4", GROUP, "zero", "zero_point"), ("u4", GROUP, "one zero", "zero_point"),
        ("i4", GROUP, "codes", "files_differ"),
        ("u4", GROUP, "codes", "files_differ"), ("i4", GROUP, "coarse", "coarse_scale"),
        ("i8", WIDE, "scale", "scale"), ("u8", WIDE, "zero", "zero_point"), ("u8", WIDE, "codes", "files_differ"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_a_fault_in_a_weight_of_groups_is_told_by_its_constant(
    tmp_path: Path, kind: str, group: int, fault: str, code: str, turned: bool
) -> None:
    report = _compare(tmp_path, _make(tmp_path / "held.xml", kind, fault, group, turned=turned), turned=turned)
    assert report.verdict is Verdict.FAIL
    assert _list_causes(report) == [("h1", code)]
    evidence = report.explanation.culprits[0].evidence
    assert (evidence.get("weight") or evidence.get("from") or evidence.get("name")) == "w1"
    assert evidence["left"] < 0.75


@pytest.mark.parametrize(
    ("kind", "fault", "name"),
    [(kind, fault, name) for fault, name in (("scale", "w1/scale"), ("one code", "w1"), ("one zero", "w1/zero_point"))
     for kind in ("u4", "u8", "i4", "f8e4m3", "nf4") if kind.startswith("u") or fault != "one zero"],
)  # fmt: skip
def test_of_two_files_that_hold_the_weight_in_groups_the_constant_is_told(
    tmp_path: Path, kind: str, fault: str, name: str
) -> None:
    base, target = (_make(tmp_path / f"{one or 'sound'}.xml", kind, one) for one in ("", fault))
    report = precision_debug.compare(
        target, baseline_model=base, run_mode="ov_fp32", baseline="ov_fp32", inputs={"x": X}
    )  # fmt: skip
    assert report.verdict is Verdict.FAIL
    assert _list_causes(report) == [("h1", "files_differ")]
    evidence = report.explanation.culprits[0].evidence
    assert evidence["name"] == name
    assert evidence["left"] < 0.02


@pytest.mark.parametrize("mode", ["INT8_ASYM", "INT4_SYM", "INT4_ASYM", "NF4"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_scale_in_what_nncf_made_of_a_weight_is_told(tmp_path: Path, mode: str, times: int) -> None:
    nncf = pytest.importorskip("nncf", reason="nncf is not installed")
    from openvino import opset13

    logging.getLogger("nncf").setLevel(logging.ERROR)
    made = getattr(nncf.CompressWeightsMode, mode, None)
    if made is None:
        pytest.skip(f"this NNCF has no {mode}")
    base = _make(tmp_path / "base.xml")
    ways: dict[str, Any] = {"group_size": 32, "ratio": 1.0, "all_layers": True} if mode != "INT8_ASYM" else {}
    model = nncf.compress_weights(
        openvino.Core().read_model(base), mode=made, ignored_scope=nncf.IgnoredScope(names=["h0", "h2"]), **ways
    )
    scale = next(op for op in model.get_ops() if op.get_friendly_name() == "w1/scale")
    held = scale.get_data(dtype=np.float32).copy()
    held[..., -1:, 7:9] *= times
    scale.output(0).replace(opset13.constant(held, dtype=scale.get_element_type(), name="w1/scale").output(0))
    openvino.save_model(model, str(tmp_path / "held.xml"), compress_to_fp16=False)
    report = _compare(tmp_path, tmp_path / "held.xml")
    if times == 1:
        assert (report.verdict, _list_causes(report)) == (Verdict.EXPECTED, [])
    else:
        assert _list_causes(report) == [("h1", "scale")]
        assert report.explanation.culprits[0].evidence["ratio"] == pytest.approx(times, rel=0.2)
