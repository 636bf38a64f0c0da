"""A fourth batch of two files: one quantisation in two forms, quantised files beside float ones, and differences that
cost little; written and labelled before any of it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planted.fourth_clean import block, residual
from planted.onnx_faults import Array, Graph, _attribute, image, tokens
from planted.onnx_further import _put, k
from planted.unseen import Unseen
from planted.unseen_files import pair as registered
from planted.unseen_files import weight

CASES: list[Unseen] = []


def pair(*words: Any, **more: Any) -> None:
    registered(*words, cases=CASES, **more)


def encoder(g: Graph) -> Sequence[str]:
    x = tokens(g)
    for n in range(3):
        x = block(g, x, 32, f"l{n}")
    return [g.dense(g.norm(x, 32, "n"), 32, 8, "y")]


def conv_net(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "sr")
    for n in range(5):
        x = residual(g, x, 8, f"b{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat"), 8, 4, "y")]


# --- what a few numbers of a weight cost, in FP32 and in a narrow type

pair("one_weight_transposed", encoder, weight("l1_m_down.w", lambda w: np.roll(w, 1, axis=1)), "l1_m_down_mm")
pair("one_gain_off_by_a_percent", encoder, lambda g: g.weights.update({"n.g": g.weights["n.g"] * 1.01}), "n")
pair("one_bias_left_out", encoder, _put("l2_a_v.b", slice(None), 0.0), "l2_a_v")
pair("epsilon_of_one_norm", encoder, _attribute("l0_n2", epsilon=1e-3), "l0_n2")
CASES[-1] = replace(CASES[-1], status=0)  # 9.0e-5 at the output: it is named, and the run passes
pair("one_kernel_mirrored", conv_net, weight("b2_c1.w", lambda w: w[:, :, ::-1]), "b2_c1")
pair("factor_of_one_branch", conv_net, _put("b3.half", (), 0.45), "b3_h")


def narrow(name: str, build: Any, change: Any, who: str, mode: str) -> None:
    """The target's file differs, and runs in a narrow type."""
    pair(f"{name}_{mode}", build, change, who, "files_differ", mode=mode)


def rolled(key: str) -> Any:
    return weight(key, lambda w: np.roll(w, 1, axis=0))


for mode in ("ort_fp16_sim", "ort_bf16_sim"):
    narrow("roll_in_the_last_block", encoder, rolled("l2_m_down.w"), "l2_m_down_mm", mode)
    narrow("roll_of_a_kernel", conv_net, rolled("b4_c2.w"), "b4_c2", mode)
narrow("offset_of_one_bias", encoder, _put("l1_m_down.b", slice(0, 4), 0.5), "l1_m_down", "ort_bf16_sim")


# --- one quantisation in two forms, and a quantised file beside the float one


def quantised(g: Graph, x: str, scale: float, out: str, zero: int = 128) -> str:
    """Quantise to uint8, and back."""
    s, z = k(g, f"{out}.s", scale), g.weight(f"{out}.zp", np.uint8(zero))
    g.op("QuantizeLinear", [x, s, z], f"{out}_q")
    return g.op("DequantizeLinear", [f"{out}_q", s, z], out)


def weights_in_int8(g: Graph, name: str, value: Array) -> str:
    scale = np.float32(np.abs(value).max() / 127)
    g.weight(f"{name}.q", np.clip(np.round(value / scale), -127, 127).astype(np.int8))
    return g.op("DequantizeLinear", [f"{name}.q", k(g, f"{name}.s", scale), g.weight(f"{name}.z", np.int8(0))], name)


Change = Callable[[str, float, int], tuple[float, int]]


def whole_net(g: Graph, change: Change | None = None, *, whole: bool = True) -> Sequence[str]:
    """Six convolutions in INT8, as a quantiser writes them; whole=False: the float model that it was made of."""
    r = np.random.default_rng(5)
    x, inside = image(g), 3

    def held(name: str, scale: float, out: str) -> str:
        wanted, zero = (change or (lambda _n, s, z: (s, z)))(out, scale, 128)
        return quantised(g, name, wanted, out, zero) if whole else g.op("Identity", [name], out)

    x = held(x, 4 / 127, "x_d")
    for n in range(6):
        w = r.normal(size=(8, inside, 3, 3)).astype(np.float32) / np.sqrt(9 * inside) * 1.4
        kernel = weights_in_int8(g, f"c{n}.w", w) if whole else g.weight(f"c{n}.w", w)
        bias = k(g, f"c{n}.b", r.normal(size=8) * 0.1)
        x = g.op("Relu", [g.op("Conv", [x, kernel, bias], f"c{n}", pads=[1, 1, 1, 1])], f"r{n}")
        x, inside = held(x, 10 / 127, f"d{n}"), 8
    w = r.normal(size=(4, 8, 1, 1)).astype(np.float32)
    return [g.op("Conv", [x, g.weight("last.w", w)], "y")]


def one_file(name: str, mode: str, baseline: str, who: str = "", why: str = "") -> None:
    def make(folder: Path) -> tuple[Path, None, dict[str, Array]]:
        g = Graph(seed=9)
        return g.save(folder / f"{name}.onnx", whole_net(g)), None, g.feeds

    CASES.append(Unseen(name=name, kind="same quantisation", mode=mode, make=make, who=tuple(who.split()),
                        why=tuple(why.split()), status=int(bool(who)), baseline=baseline))  # fmt: skip


one_file("quantised_file_at_two_levels", "ort_opt", "ort_fp32")
one_file("quantised_file_in_openvino", "ov_opt_fp32", "ort_fp32")


def two(name: str, change: Change | None, who: str = "", why: str = "", *, mode: str = "ort_fp32",
        float_base: bool = True, kind: str = "quantised", **more: Any) -> None:  # fmt: skip
    """A quantised file; beside the float model, or beside itself without ``change``."""

    def make(folder: Path) -> tuple[Path, Path, dict[str, Array]]:
        plain, made = Graph(seed=9), Graph(seed=9)
        base = plain.save(folder / "base.onnx", whole_net(plain, whole=not float_base))
        return made.save(folder / f"{name}.onnx", whole_net(made, change)), base, plain.feeds

    CASES.append(Unseen(name=name, kind=kind, mode=mode, make=make, who=tuple(who.split()), why=tuple(why.split()),
                        status=int(bool(who)), baseline="ort_fp32", **more))  # fmt: skip


def at(place: str, times: float = 1.0, zero: int | None = None) -> Change:
    return lambda name, s, z: (s * times, z if zero is None else zero) if name == place else (s, z)


two("quantised_beside_its_float_model", None)
two("quantised_and_fused_beside_its_float_model", None, mode="ort_opt")
two("range_four_times_too_small", at("d2", 0.06), "d2 d2_q r2", "saturation")
two("range_too_small_and_fused", at("d3", 0.06), "d3 d3_q r3", "saturation", mode="ort_opt")
two("zero_point_at_the_end", at("x_d", 1.0, 255), "x_d x_d_q", "saturation coarse")
two("range_sixteen_times_too_wide", at("d4", 16.0), "d4 d4_q r4", "coarse outlier_channel")
two("scale_of_two_quantised_files", at("d2", 1.3), "d2 d2_q", "files_differ", float_base=False)
two("scale_of_two_fused_quantised_files", at("d1", 1.1), "d1 d1_q", "files_differ", float_base=False, mode="ort_opt")
two("same_quantised_file_twice", None, float_base=False, kind="same quantisation")
two("same_quantised_file_twice_fused", None, float_base=False, mode="ort_opt", kind="same quantisation")

CASES = [replace(case, fix=False) for case in CASES]
