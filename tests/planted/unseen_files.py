"""Two files that should hold one model, and do not: what exporters and people do wrong. Both sides run in FP32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from planted.onnx_faults import Array, Graph, _attribute, image, tokens
from planted.onnx_further import _put, ints, k
from planted.unseen import Unseen
from planted.unseen_onnx import group_norm, llama_layer, rms, rope, silu, squeeze_excite

CASES: list[Unseen] = []

Build = Callable[[Graph], Sequence[str]]
Change = Callable[[Graph], Any]
SAME = "files_differ"


def pair(
    name: str, build: Build, change: Change | Build, who: str = "", why: str = SAME, *, mode: str = "ort_fp32",
    other: bool = False, cases: list[Unseen] = CASES, kind: str = "files", **more: Any,
) -> None:  # fmt: skip
    """Two files. other: ``change`` builds the target's graph anew; else it edits what ``build`` made."""

    def make(folder: Path) -> tuple[Path, Path, dict[str, Array]]:
        plain, changed = Graph(seed=77), Graph(seed=77)
        base = plain.save(folder / "base.onnx", build(plain))
        outputs: Any = (change if other else build)(changed)
        if not other:
            change(changed)
        return changed.save(folder / f"{name}.onnx", outputs), base, plain.feeds

    cases.append(
        Unseen(name=name, kind=kind, mode=mode, make=make, who=tuple(who.split()), why=tuple(why.split()),
               status=int(bool(who)), baseline="ort_fp32", **more)
    )  # fmt: skip


def weight(name: str, edit: Callable[[Array], Any]) -> Change:
    """Replace a weight by what ``edit`` makes of it."""
    return lambda g: g.weights.update({name: np.ascontiguousarray(edit(g.weights[name].copy()))})


def swapped(first: str, second: str) -> Change:
    """Swap two weights of one shape."""
    return lambda g: g.weights.update({first: g.weights[second], second: g.weights[first]})


def node(g: Graph, output: str) -> Any:
    return next(n for n in g.nodes if n.name == f"node_{output}")


# --- a classifier with a batch norm, pools, a resize and a head


def classifier(g: Graph) -> Sequence[str]:
    x = g.conv(image(g), 3, 8, "c1")
    r = g.random
    for name, value in (("s", r.uniform(0.5, 1.5, 8)), ("b", r.normal(size=8)), ("m", r.uniform(0.2, 0.8, 8)),
                        ("v", r.uniform(0.5, 2.5, 8))):  # fmt: skip
        k(g, f"bn.{name}", value)
    x = g.op("BatchNormalization", [x, "bn.s", "bn.b", "bn.m", "bn.v"], "bn", epsilon=1e-5)
    x = g.op("HardSwish", [x], "hs")
    x = g.op("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    w = r.normal(size=(8, 8, 3, 3)) / 8
    x = g.op("Conv", [x, g.weight("c2.w", w)], "c2", strides=[2, 2], pads=[0, 0, 1, 1])
    x = g.op("Resize", [x, "", k(g, "sc", [1, 1, 2, 2])], "up", mode="linear",
             coordinate_transformation_mode="half_pixel")  # fmt: skip
    x = g.op("PRelu", [x, k(g, "slope", r.uniform(0.1, 0.4, size=(8, 1, 1)))], "prelu")
    x = g.op("AveragePool", [x], "avg", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
    flat = g.op("Reshape", [x, ints(g, "shape", 2, -1)], "flat")
    return [g.dense(flat, 128, 6, "head")]


pair("epsilon_of_the_batch_norm", classifier, _attribute("bn", epsilon=0.05), "bn")
pair("mean_and_variance_swapped", classifier, swapped("bn.m", "bn.v"), "bn")
pair("stale_statistics", classifier, lambda g: g.weights.update(
    {"bn.m": np.zeros(8, np.float32), "bn.v": np.ones(8, np.float32)}), "bn")  # fmt: skip
pair("pads_on_the_other_side", classifier, _attribute("c2", pads=[1, 1, 0, 0]), "c2")
pair("pads_of_the_pool", classifier, _attribute("pool", pads=[1, 1, 0, 0]), "pool")
pair("corners_aligned", classifier, _attribute("up", coordinate_transformation_mode="align_corners"), "up")
pair("nearest_resize", classifier, _attribute("up", mode="nearest"), "up")
pair("padding_not_counted", classifier, _attribute("avg", count_include_pad=0), "avg")
pair("weight_flipped", classifier, weight("c2.w", lambda w: w[:, :, ::-1, ::-1]), "c2")
pair("channels_bgr", classifier, weight("c1.w", lambda w: w[:, ::-1]), "c1")
pair("weight_transposed", classifier, weight("c2.w", lambda w: w.transpose(1, 0, 2, 3)), "c2")
pair("bias_left_out", classifier, lambda g: g.weights.update({"head.b": np.zeros(6, np.float32)}), "head")
pair("slopes_in_reverse", classifier, weight("slope", lambda s: s[::-1]), "prelu")
pair("epsilon_fused", classifier, _attribute("bn", epsilon=0.3), "bn hs c1", mode="ort_opt")
pair(
    "relu_in_place_of_hard_swish",
    classifier,
    lambda g: node(g, "hs").__setattr__("op_type", "Relu"),
    "hs pool",
    "files_differ other_arithmetic",
)


def no_bias(g: Graph) -> Sequence[str]:
    """The addition is not there at all."""
    classifier(g)
    g.nodes[:] = [n for n in g.nodes if n.name != "node_head"]
    node(g, "head_mm").output[0] = "head"
    return ["head"]


pair("bias_node_left_out", classifier, no_bias, "head", "files_differ other_arithmetic", other=True)


def no_activation(g: Graph) -> Sequence[str]:
    outputs = classifier(g)
    g.nodes[:] = [n for n in g.nodes if n.name != "node_hs"]
    node(g, "pool").input[0] = "bn"
    return outputs


pair("activation_left_out", classifier, no_activation, "pool hs", "files_differ other_arithmetic", other=True)


# --- pixels to patches, a head over the channels last


def patches(g: Graph) -> Sequence[str]:
    x = g.op("Conv", [image(g), g.weight("p.w", g.random.normal(size=(16, 3, 4, 4)) / 7)], "patch", strides=[4, 4])
    x = g.op("Transpose", [g.op("Reshape", [x, ints(g, "s", 2, 16, 16)], "flat")], "tok", perm=[0, 2, 1])
    x = g.attention(g.norm(g.op("Add", [x, k(g, "pos", g.random.normal(size=(16, 16)))], "sum"), 16, "n"), 16, "a")
    cls = g.op("Slice", [x, ints(g, "from", 0), ints(g, "to", 8), ints(g, "axis", 1)], "half")
    mean = g.op("ReduceMean", [cls], "mean", axes=[1], keepdims=0)
    return [g.dense(mean, 16, 5, "y")]


pair("layout_mixed_up", patches, _attribute("tok", perm=[0, 1, 2]), "tok sum")
pair("slice_off_by_one", patches, lambda g: g.weights.update(
    {"from": np.array([1], np.int64), "to": np.array([9], np.int64)}), "half mean")  # fmt: skip
pair("mean_over_the_wrong_axis", lambda g: [g.op("ReduceMean", [g.op("Tanh", [g.input(
    "x", g.random.normal(size=(2, 8, 8, 4)).astype(np.float32))], "t")], "y", axes=[1], keepdims=0)],
    _attribute("y", axes=[2]), "y")  # fmt: skip
pair("softmax_over_queries", patches, _attribute("a_prob", axis=1), "a_prob")
pair("positions_shifted", patches, weight("pos", lambda p: np.roll(p, 1, axis=0)), "sum")
pair("scale_of_the_whole_width", patches, weight("a.d", lambda d: d * 2), "a_score")
pair(
    "norm_has_no_gain", lambda g: [g.dense(rms(g, tokens(g), 32, "n"), 32, 8, "y")], _put("n.g", slice(0, 9), 0.2), "n"
)


# --- gelu, masks, rotary embeddings, caches


def gelu(approximate: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        up = g.dense(g.norm(tokens(g), 32, "n"), 32, 64, "up", 2.0)
        if approximate == "erf":
            inner = g.op("Erf", [g.op("Mul", [up, k(g, "r", 0.5**0.5)], "scaled")], "inner")
        else:
            cubed = g.op("Mul", [g.op("Mul", [up, g.op("Mul", [up, up], "sq")], "cube"), k(g, "c", 0.044715)], "cubic")
            inner = g.op(
                "Tanh",
                [g.op("Mul", [g.op("Add", [up, cubed], "sum"), k(g, "r", (2 / np.pi) ** 0.5)], "scaled")],
                "inner",
            )
        half = g.op("Mul", [up, g.op("Add", [inner, k(g, "one", 1)], "plus")], "both")
        return [g.dense(g.op("Mul", [half, k(g, "half", 0.5)], "act"), 64, 8, "y")]

    return build


pair(
    "gelu_by_tanh", gelu("erf"), gelu("tanh"), "act inner plus scaled both", "files_differ other_arithmetic", other=True
)


def causal(g: Graph) -> Sequence[str]:
    mask = k(g, "mask", np.triu(np.full((8, 8), -1e4), 1)[None])
    return [g.norm(g.attention(tokens(g), 32, "a", mask), 32, "y")]


pair("mask_of_the_other_sign", causal, weight("mask", lambda m: -m), "a_masked")
pair(
    "mask_sees_one_ahead",
    causal,
    weight("mask", lambda m: np.triu(np.full((8, 8), -1e4, np.float32), 2)[None]),
    "a_masked",
)


def rotary(g: Graph) -> Sequence[str]:
    q = rope(g, g.dense(tokens(g), 32, 32, "q"), 8, 16, "r", start=40)
    return [g.op("MatMul", [q, g.op("Transpose", ["x"], "t", perm=[0, 2, 1])], "y")]


pair(
    "other_base_of_rotary",
    rotary,
    weight("r.freq", lambda f: (500000.0 ** -(np.arange(16) / 16)).astype(np.float32)),
    "r_angle r_cos r_sin",
)
pair("cache_off_by_one", rotary, weight("r.pos", lambda p: p + 1), "r_angle r_cos r_sin")
pair("rotary_sign", rotary, lambda g: node(g, "r_first").__setattr__("op_type", "Add"), "r_first")
pair("one_weight_of_a_llama", lambda g: [llama_layer(g, llama_layer(g, tokens(g), 32, "l0"), 32, "l1")],
     _put("l1_u.w", (3, 17), 2.5), "l1_u_mm")  # fmt: skip
pair(
    "epsilon_of_rms",
    lambda g: [llama_layer(g, tokens(g, scale=0.02), 32, "l0")],
    _put("l0_n1.eps", (), 1e-3),
    "l0_n1_var",
)


# --- decisions, integers, quantised weights


def quantised_weight(g: Graph) -> Sequence[str]:
    w = g.weight("w_q", g.random.integers(-127, 128, size=(16, 32)).astype(np.int8))
    scale, zero = k(g, "w_s", g.random.uniform(0.5, 1.5, 16) / 700), g.weight("w_z", np.zeros(16, np.int8))
    w = g.op("DequantizeLinear", [w, scale, zero], "w", axis=0)
    x = g.op("MatMul", [tokens(g), g.op("Transpose", [w], "w_t", perm=[1, 0])], "up")
    return [g.dense(g.op("Relu", [x], "act"), 16, 4, "y")]


pair("scale_of_one_channel", quantised_weight, _put("w_s", 5, 4e-3), "w w_t up")


def linear_index(dtype: int) -> Build:
    """Row times stride, in a type that may be too narrow for it."""

    def build(g: Graph) -> Sequence[str]:
        row = g.op("Cast", [g.input("row", np.array([[1, 70000, 5, 90000]]))], "narrow", to=dtype)
        stride = g.weight("stride", helper.tensor_dtype_to_np_dtype(dtype).type(65536))
        wide = g.op("Cast", [g.op("Mul", [row, stride], "product")], "index", to=TensorProto.INT64)
        place = g.op("Mod", [g.op("Div", [wide, ints(g, "d", 65536)], "back"), ints(g, "n", 97)], "place")
        return [g.op("Gather", [k(g, "table", g.random.normal(size=(97, 8))), place], "y")]

    return build


pair("indices_of_32_bits", linear_index(TensorProto.INT64), linear_index(TensorProto.INT32), "narrow product index",
     "files_differ other_arithmetic flips", other=True)  # fmt: skip


def brightness(dtype: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op(
            "Cast", [g.input("x", g.random.integers(0, 256, size=(2, 3, 8, 8)).astype(np.uint8))], "typed", to=dtype
        )
        more = g.weight("more", helper.tensor_dtype_to_np_dtype(dtype).type(60))
        x = g.op("Cast", [g.op("Add", [x, more], "brighter")], "pixels", to=TensorProto.FLOAT)
        return [g.conv(g.op("Div", [x, k(g, "d", 255)], "unit"), 3, 4, "y")]

    return build


pair("pixels_wrap_around", brightness(TensorProto.INT32), brightness(TensorProto.UINT8), "typed brighter pixels",
     "files_differ other_arithmetic flips", other=True)  # fmt: skip


def rounded(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [g.dense(tokens(g), 32, 16, "a"), k(g, "s", 4)], "times")
    return [g.dense(g.op("Round", [x], "whole"), 16, 4, "y")]


pair("floor_in_place_of_round", rounded, lambda g: node(g, "whole").__setattr__("op_type", "Floor"), "whole")


def first_token(g: Graph) -> Sequence[str]:
    cls = g.op("Gather", [g.mlp(tokens(g), 32, "m"), g.weight("at", np.int64(0))], "cls", axis=1)
    return [g.dense(cls, 32, 8, "y")]


pair("token_off_by_one", first_token, lambda g: g.weights.update(at=np.int64(7)), "cls y_mm")


def ceiled(mode: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.input("x", g.random.normal(size=(2, 3, 15, 15)).astype(np.float32))
        x = g.op("MaxPool", [g.conv(x, 3, 8, "c")], "pool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=mode)
        return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat"), 8, 4, "y")]

    return build


pair("ceil_mode_of_a_pool", ceiled(1), ceiled(0), "pool gap", "files_differ other_arithmetic flips", other=True)


def gates(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.normal(size=(7, 2, 8)).astype(np.float32))
    w, r = g.random.normal(size=(1, 32, 8)) * 0.4, g.random.normal(size=(1, 32, 8)) * 0.4
    g.op("LSTM", [x, g.weight("w", w), g.weight("r", r)], "lstm", hidden_size=8)
    return [g.op("Mul", ["lstm", k(g, "two", 2)], "y")]


pair("gates_in_another_order", gates, weight("w", lambda w: w[:, np.r_[0:8, 16:24, 8:16, 24:32]]), "lstm")
pair("recurrence_reversed", gates, _attribute("lstm", direction="reverse"), "lstm")


def dropped(training: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.mlp(tokens(g), 32, "a")
        x = g.op("Dropout", [x, k(g, "ratio", 0.4), g.weight("on", np.bool_(training))], "drop")
        return [g.dense(x, 32, 8, "y")]

    return build


pair("dropout_in_training", dropped(False), dropped(True), "drop", "files_differ random", other=True)
pair("two_weights_differ", classifier, lambda g: [_put("c1.w", (3, 1, 1, 1), 2.0)(g), _put("head.w", (70, 2), 3.0)(g)],
     "c1 head_mm", also=("c1", "head_mm"))  # fmt: skip


def experts(g: Graph) -> Sequence[str]:
    x = g.norm(tokens(g), 32, "n")
    p = g.op("Softmax", [g.dense(x, 32, 4, "router")], "p", axis=-1)
    parts = []
    for e in range(4):
        one = g.op("Slice", [p, ints(g, f"f{e}", e), ints(g, f"t{e}", e + 1), ints(g, f"a{e}", -1)], f"p{e}")
        parts.append(g.op("Mul", [silu(g, g.dense(x, 32, 32, f"e{e}"), f"s{e}"), one], f"w{e}"))
    return [g.op("Sum", parts, "y")]


pair("experts_swapped", experts, lambda g: [swapped("e1.w", "e2.w")(g), swapped("e1.b", "e2.b")(g)], "e1_mm e2_mm")
pair("excitation_by_another_slope",
     lambda g: [g.conv(squeeze_excite(g, g.conv(image(g), 3, 8, "c"), 8, "se"), 8, 4, "y")],
     _attribute("se_gate", alpha=0.2), "se_gate")  # fmt: skip
pair("groups_of_a_norm",
     lambda g: [g.conv(silu(g, group_norm(g, g.conv(image(g), 3, 8, "c"), 8, "gn"), "act"), 8, 3, "y")],
     _put("gn.1", 1, 1.4), "gn_in")  # fmt: skip


# --- two files that are one model


def renamed(g: Graph) -> Sequence[str]:
    """Every tensor and node has another name, as another exporter gives them."""
    outputs = classifier(g)
    names: dict[str, str] = {}
    for place, one in enumerate(g.nodes):
        for name in one.output:
            names[name] = name if name in outputs else f"t_{place:03d}"
        one.name = f"n{place}"
    for one in g.nodes:
        one.input[:] = [names.get(name, name) for name in one.input]
        one.output[:] = [names[name] for name in one.output]
    return outputs


def folded(g: Graph) -> Sequence[str]:
    """The batch norm is folded into the convolution before it."""
    outputs = classifier(g)
    w = g.weights
    gain = w["bn.s"] / np.sqrt(w["bn.v"] + 1e-5)
    w["c1.w"] = (w["c1.w"] * gain[:, None, None, None]).astype(np.float32)
    k(g, "c1.b", w["bn.b"] - w["bn.m"] * gain)
    g.nodes[:] = [n for n in g.nodes if n.name != "node_bn"]
    node(g, "c1").input.append("c1.b")
    node(g, "c1").output[0] = "bn"
    return outputs


def renamed_and_wrong(g: Graph) -> Sequence[str]:
    outputs = renamed(g)
    g.weights["c2.w"][3, 4, 1, 1] += 2
    return outputs


pair("other_names", classifier, renamed, other=True, kind="files clean")
pair("norm_folded", classifier, folded, other=True, kind="files clean")
pair(
    "terms_in_another_order",
    patches,
    lambda g: node(g, "sum").input.__setitem__(slice(None), ["pos", "tok"]),
    kind="files clean",
)
pair("other_names_and_one_weight", classifier, renamed_and_wrong, "c2", other=True)
for _mode in ("ort_fp16_sim", "ort_bf16_sim"):
    pair(
        f"same_llama_{_mode}",
        lambda g: [llama_layer(g, tokens(g), 32, "l0")],
        lambda g: None,
        mode=_mode,
        kind="files clean",
    )
pair("one_weight_in_int8", classifier, _put("c2.w", (3, 4, 1, 1), 4.0), "c2 up prelu", mode="ort_int8")
pair("one_weight_in_float16", patches, _put("a_q.w", (3, 4), 4.0), "a_q_mm", mode="ort_fp16_sim")
