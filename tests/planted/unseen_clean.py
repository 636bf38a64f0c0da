"""Models that accuse nobody, or whose baseline is not a number itself: architectures that the rules never saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from planted.onnx_faults import Graph, _body, _info, image, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen
from planted.unseen_onnx import group_norm, llama_layer, rms, silu, squeeze_excite
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, **more)


# --- a fault that nobody sees


@unseen("benign", "ort_fp16_sim")
def overflow_that_is_not_chosen(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 32, "a")
    big = g.op("Mul", [x, k(g, "k", 2e5)], "big")
    return [g.op("Where", [g.op("Less", [x, k(g, "far", 50)], "yes"), x, big], "y")]


@unseen("benign", "ort_fp16_sim ort_int8")
def underflow_beside_one(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 32, "a")
    return [g.op("Add", [x, g.op("Mul", [x, k(g, "k", 1e-9)], "tiny")], "y")]


@unseen("benign", "ort_fp16_sim")
def overflow_that_reaches_no_output(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 32, "a")
    g.op("Exp", [g.op("Mul", [x, k(g, "k", 1e5)], "big")], "dead")
    return [g.op("Relu", [x], "y")]


@unseen("benign", "ort_fp16_sim ort_bf16_sim")
def offset_but_the_same_winner(g: Graph) -> Sequence[str]:
    """The scores are off by much, the winner is far ahead."""
    table = np.zeros((32, 10), np.float32)
    table[:4] = np.eye(4, 10) * 400
    x = g.input("x", np.eye(4, 32, dtype=np.float32))
    logits = g.op("Add", [g.op("MatMul", [x, k(g, "w", table)], "l"), k(g, "o", 3000)], "moved")
    return [g.op("ArgMax", [logits], "y", axis=-1)]


@unseen("benign", "ort_fp16_sim")
def overflow_into_a_clip(g: Graph) -> Sequence[str]:
    x = g.op("Exp", [g.dense(tokens(g), 32, 32, "a", 6.0)], "e")
    return [g.op("Min", [x, k(g, "top", 10)], "y")]


@unseen("benign", "ort_fp16_sim")
def limits_of_clip_are_the_largest_floats(g: Graph) -> Sequence[str]:
    top = float(np.finfo(np.float32).max)
    x = g.op("Clip", [g.mlp(tokens(g), 32, "a"), k(g, "lo", -top), k(g, "hi", top)], "c")
    return [g.norm(x, 32, "y")]


# --- clean: larger, odd, empty, constant


FLOATS = "ort_fp16_sim ort_bf16_sim ort_opt"


@unseen("clean", FLOATS)
def deep_llama(g: Graph) -> Sequence[str]:
    x = tokens(g, 32, 16)
    for layer in range(6):
        x = llama_layer(g, x, 32, f"l{layer}", length=16)
    return [g.dense(rms(g, x, 32, "n"), 32, 50, "y")]


@unseen("clean", f"{FLOATS} ort_int8 ort_fp16", opset=14)
def mobile_net(g: Graph) -> Sequence[str]:
    x = g.op("HardSwish", [g.conv(image(g), 3, 16, "stem")], "hs")
    for layer in range(4):
        w = g.random.normal(size=(16, 1, 3, 3)) / 3
        deep = g.op("Conv", [x, g.weight(f"d{layer}.w", w)], f"d{layer}", group=16, pads=[1, 1, 1, 1])
        point = g.weight(f"p{layer}.w", g.random.normal(size=(16, 16, 1, 1)) / 4)
        wide = squeeze_excite(g, g.op("HardSwish", [deep], f"h{layer}"), 16, f"se{layer}")
        x = g.op("Add", [x, g.op("Conv", [wide, point], f"p{layer}")], f"r{layer}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat"), 16, 10, "y")]


@unseen("clean", FLOATS)
def diffusion_block(g: Graph) -> Sequence[str]:
    t = g.input("t", np.array([[0.3], [0.7]], np.float32))
    emb = silu(
        g, g.dense(g.op("Sin", [g.op("Mul", [t, k(g, "f", np.arange(1, 17))], "ang")], "sin"), 16, 8, "te"), "ts"
    )
    emb = g.op("Reshape", [emb, ints(g, "es", 2, 8, 1, 1)], "emb")
    x = g.conv(image(g), 3, 8, "stem")
    for layer in range(3):
        h = g.conv(silu(g, group_norm(g, x, 8, f"n{layer}"), f"s{layer}"), 8, 8, f"c{layer}")
        h = g.conv(
            silu(g, group_norm(g, g.op("Add", [h, emb], f"e{layer}"), 8, f"m{layer}"), f"z{layer}"), 8, 8, f"d{layer}"
        )
        x = g.op("Add", [x, h], f"r{layer}")
    return [g.conv(x, 8, 3, "y")]


@unseen("clean", FLOATS)
def detection_with_suppression(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c")], "r")
    flat = g.op("Reshape", [g.conv(x, 8, 4, "loc"), ints(g, "s", 2, 4, 256)], "flat")
    boxes = g.op("Mul", [g.op("Transpose", [flat], "boxes_t", perm=[0, 2, 1]), k(g, "px", 64)], "boxes")
    score = g.op("Sigmoid", [g.op("Reshape", [g.conv(x, 8, 2, "cls"), ints(g, "s2", 2, 2, 256)], "cls_flat")], "score")
    return [boxes, score]


@unseen("clean", "ort_fp16_sim ort_bf16_sim")
def newton_until_it_is_near(g: Graph) -> Sequence[str]:
    """A loop that ends when a step is small: a narrow type may need other numbers of steps."""
    x = g.op("Add", [g.op("Abs", [g.dense(tokens(g), 32, 32, "a")], "abs"), k(g, "one", 1)], "x1")
    body = _body(
        [
            helper.make_node("Div", [x, "state"], ["ratio"], name="nw_div"),
            helper.make_node("Add", ["state", "ratio"], ["both"], name="nw_add"),
            helper.make_node("Mul", ["both", "half"], ["next"], name="nw_half"),
            helper.make_node("Sub", ["next", "state"], ["step"], name="nw_sub"),
            helper.make_node("Abs", ["step"], ["size"], name="nw_abs"),
            helper.make_node("ReduceMax", ["size"], ["worst"], name="nw_max", keepdims=0),
            helper.make_node("Greater", ["worst", "near"], ["go_on"], name="nw_go"),
        ],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [2, 8, 32])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [2, 8, 32])],
        {"half": np.float32(0.5), "near": np.float32(1e-5)},
    )  # fmt: skip
    n, go = g.weight("n", np.int64(12)), g.weight("go", np.bool_(True))
    g.nodes.append(helper.make_node("Loop", [n, go, x], ["root"], name="node_newton", body=body))
    return [g.op("Mul", ["root", k(g, "k", 2)], "y")]


@unseen("clean", f"{FLOATS} ort_int8")
def one_of_a_batch(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.normal(size=(1, 1, 16)).astype(np.float32))
    return [g.op("Softmax", [g.dense(g.op("Tanh", [g.dense(x, 16, 16, "a")], "t"), 16, 2, "b")], "y", axis=-1)]


@unseen("empty", FLOATS, status=1, says="0 elements")
def nothing_in_it(g: Graph) -> Sequence[str]:
    """No box was found: tensors of no element, and one output that has some."""
    boxes = g.input("boxes", np.zeros((0, 4), np.float32))
    x = g.dense(boxes, 4, 8, "a")
    return [g.op("Relu", [x], "y"), g.op("ReduceSum", [x, ints(g, "ax", 0)], "sum")]


@unseen("clean", f"{FLOATS} ort_int8 ort_int8_dynamic")
def fed_with_zeros(g: Graph) -> Sequence[str]:
    return [g.norm(g.mlp(g.input("x", np.zeros((2, 8, 32), np.float32)), 32, "a"), 32, "y")]


@unseen("clean", "ort_fp16_sim ort_opt ort_int8")
def output_is_constant(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [g.dense(tokens(g), 32, 8, "a"), k(g, "zero", 0)], "nothing")
    return [g.op("Add", [x, k(g, "one", 1)], "y")]


@unseen("clean", "ort_bf16_sim ort_opt")
def tiny_but_in_range(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [g.mlp(tokens(g), 32, "a"), k(g, "s", 1e-12)], "tiny")
    return [g.op("Add", [x, g.op("Mul", [x, k(g, "h", 0.5)], "half")], "y")]


@unseen("clean", "ort_fp16_sim ort_bf16_sim")
def well_trained_log_probabilities(g: Graph) -> Sequence[str]:
    return [g.op("LogSoftmax", [g.dense(g.norm(tokens(g), 32, "n"), 32, 20, "logits", 5.0)], "y", axis=-1)]


@unseen("clean", "ort_int8 ort_int8_dynamic")
def vision_transformer(g: Graph) -> Sequence[str]:
    w = g.weight("patch.w", g.random.normal(size=(32, 3, 4, 4)) / 7)
    x = g.op("Conv", [image(g), w], "patch", strides=[4, 4])
    x = g.op("Transpose", [g.op("Reshape", [x, ints(g, "s", 2, 32, 16)], "flat")], "tok", perm=[0, 2, 1])
    for layer in range(2):
        x = g.attention(g.norm(x, 32, f"n{layer}"), 32, f"a{layer}")
        x = g.mlp(g.norm(x, 32, f"o{layer}"), 32, f"m{layer}")
    return [g.dense(g.op("ReduceMean", [x], "mean", axes=[1], keepdims=0), 32, 10, "y")]


# --- the baseline is not a number itself


@unseen("baseline", "ort_fp16_sim ort_opt", "ratio", "born_on_both", status=1, says="nan", fix=False)
def nothing_by_nothing(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.op("Sub", [tokens(g), k(g, "o", 100)], "low")], "none")
    return [g.dense(g.op("Div", [x, x], "ratio"), 32, 8, "y")]


@unseen("baseline", "ort_fp16_sim", says="1 nan")
def fed_with_a_nan(g: Graph) -> Sequence[str]:
    x = g.random.normal(size=(2, 8, 32)).astype(np.float32)
    x[1, 2, 3] = np.nan
    return [g.norm(g.mlp(g.input("x", x), 32, "a"), 32, "y")]


@unseen("baseline", "ort_bf16_sim", "moved", "cancellation amplified", says="nan")
def some_nan_and_a_fault(g: Graph) -> Sequence[str]:
    x = g.random.normal(size=(2, 8, 32)).astype(np.float32)
    x[1, 2, 3] = np.nan
    moved = g.op("Add", [g.dense(g.input("x", x), 32, 32, "a"), k(g, "o", 900)], "moved")
    return [g.op("Sub", [moved, k(g, "o2", 900)], "y")]
