"""A fourth batch that accuses nobody: healthy models of 10 to 60 layers; written and labelled before it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper

from planted.onnx_faults import Graph, image, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen
from planted.unseen_onnx import group_norm, llama_layer, rms, silu, squeeze_excite
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, seed=41, **more)


FLOATS = "ort_fp16_sim ort_bf16_sim"
WHOLE = "ort_int8 ort_int8_dynamic"


def block(g: Graph, x: str, size: int, out: str) -> str:
    """A transformer's layer, its norms first."""
    h = g.attention(g.norm(x, size, f"{out}_n1"), size, f"{out}_a")
    return g.op("Add", [x, g.mlp(g.norm(h, size, f"{out}_n2"), size, f"{out}_m")], out)


@unseen("healthy", f"{FLOATS} {WHOLE}")
def encoder_of_three_layers(g: Graph) -> Sequence[str]:
    x = tokens(g)
    for n in range(3):
        x = block(g, x, 32, f"l{n}")
    return [g.dense(g.norm(x, 32, "n"), 32, 10, "y")]


@unseen("healthy", f"{FLOATS} ort_int8_dynamic ov_bf16")
def encoder_with_its_norms_behind(g: Graph) -> Sequence[str]:
    x = g.norm(tokens(g), 32, "n")
    for n in range(4):
        x = g.norm(g.attention(x, 32, f"l{n}_a"), 32, f"l{n}_n1")
        x = g.norm(g.mlp(x, 32, f"l{n}_m"), 32, f"l{n}")
    return [g.op("Tanh", [g.dense(x, 32, 32, "pool")], "y")]


def residual(g: Graph, x: str, channels: int, out: str) -> str:
    h = g.op("Relu", [g.conv(x, channels, channels, f"{out}_c1")], f"{out}_r1")
    h = g.op("Mul", [g.conv(h, channels, channels, f"{out}_c2"), k(g, f"{out}.half", 0.5)], f"{out}_h")
    return g.op("Relu", [g.op("Add", [x, h], f"{out}_sum")], out)


@unseen("healthy", f"{FLOATS} ort_int8 ort_fp16 ov_bf16 ov_int8")
def residual_net_of_sixteen_convolutions(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 16, "stem")], "stem_r")
    for n in range(7):
        x = residual(g, x, 16, f"b{n}")
    flat = g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat")
    return [g.dense(flat, 16, 10, "y")]


@unseen("healthy", f"{FLOATS} ort_int8")
def residual_net_of_forty_convolutions(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 12, "stem")], "stem_r")
    for n in range(19):
        x = residual(g, x, 12, f"b{n}")
    flat = g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat")
    return [g.op("Softmax", [g.dense(flat, 12, 10, "logits")], "y", axis=-1)]


@unseen("healthy", f"{FLOATS} ort_opt")
def llama_of_three_layers(g: Graph) -> Sequence[str]:
    x = tokens(g, 32, 12)
    for n in range(3):
        x = llama_layer(g, x, 32, f"l{n}", length=12)
    return [g.dense(rms(g, x, 32, "n"), 32, 60, "y")]


@unseen("healthy", f"{FLOATS} ort_int8")
def segmenter_with_skips(g: Graph) -> Sequence[str]:
    skips = []
    x = g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "stem_r")
    for n in range(2):
        x = g.op("Relu", [g.conv(x, 8, 8, f"d{n}")], f"dr{n}")
        skips.append(x)
        x = g.op("MaxPool", [x], f"p{n}", kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Relu", [g.conv(x, 8, 8, "mid")], "mid_r")
    for n in (1, 0):
        x = g.op("Resize", [x, "", k(g, f"sc{n}", [1, 1, 2, 2])], f"u{n}", mode="nearest")
        x = g.op("Concat", [x, skips[n]], f"cat{n}", axis=1)
        x = g.op("Relu", [g.conv(x, 16, 8, f"e{n}")], f"er{n}")
    return [g.op("Sigmoid", [g.conv(x, 8, 1, "mask")], "y")]


@unseen("healthy", f"{FLOATS} {WHOLE}")
def mixer(g: Graph) -> Sequence[str]:
    x = tokens(g, 32, 16)
    for n in range(3):
        t = g.op("Transpose", [g.norm(x, 32, f"n{n}")], f"t{n}", perm=[0, 2, 1])
        t = g.op("Relu", [g.dense(t, 16, 16, f"mix{n}")], f"mr{n}")
        x = g.op("Add", [x, g.op("Transpose", [t], f"b{n}", perm=[0, 2, 1])], f"x{n}")
        x = g.mlp(x, 32, f"m{n}")
    return [g.dense(g.op("ReduceMean", [x], "mean", axes=[1], keepdims=0), 32, 10, "y")]


@unseen("healthy", f"{FLOATS} ort_int8")
def inverted_residuals(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "sr")
    for n in range(5):
        up = g.weight(f"u{n}.w", g.random.normal(size=(24, 8, 1, 1)) / np.sqrt(8))
        h = g.op("Clip", [g.op("Conv", [x, up], f"u{n}"), k(g, f"lo{n}", 0), k(g, f"hi{n}", 6)], f"uc{n}")
        deep = g.weight(f"d{n}.w", g.random.normal(size=(24, 1, 3, 3)) / 3)
        h = g.op("Conv", [h, deep], f"d{n}", group=24, pads=[1, 1, 1, 1])
        h = squeeze_excite(g, g.op("Relu", [h], f"dr{n}"), 24, f"se{n}")
        down = g.weight(f"p{n}.w", g.random.normal(size=(8, 24, 1, 1)) / np.sqrt(24))
        x = g.op("Add", [x, g.op("Conv", [h, down], f"p{n}")], f"x{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat"), 8, 10, "y")]


@unseen("healthy", f"{FLOATS} ort_int8_dynamic")
def recurrent_tagger(g: Graph) -> Sequence[str]:
    x = g.op("Transpose", [tokens(g, 16, 14)], "steps", perm=[1, 0, 2])
    for n in range(2):
        w, r = g.random.normal(size=(1, 64, 16)) / 4, g.random.normal(size=(1, 64, 16)) / 4
        g.nodes.append(helper.make_node("LSTM", [x, g.weight(f"w{n}", w), g.weight(f"r{n}", r)], [f"lstm{n}"],
                                        name=f"node_lstm{n}", hidden_size=16))  # fmt: skip
        x = g.op("Add", [x, g.op("Squeeze", [f"lstm{n}", ints(g, f"one{n}", 1)], f"h{n}")], f"x{n}")
        x = g.norm(x, 16, f"n{n}")
    x = g.op("Relu", [g.dense(x, 16, 32, "up")], "act")
    return [g.op("LogSoftmax", [g.dense(x, 32, 9, "tags")], "y", axis=-1)]


@unseen("healthy", f"{FLOATS}")
def diffusion_net(g: Graph) -> Sequence[str]:
    x = g.conv(image(g), 3, 8, "stem")
    for n in range(4):
        h = g.conv(silu(g, group_norm(g, x, 8, f"n{n}"), f"s{n}"), 8, 8, f"c{n}")
        h = g.conv(silu(g, group_norm(g, h, 8, f"m{n}"), f"z{n}"), 8, 8, f"d{n}")
        x = g.op("Add", [x, h], f"r{n}")
    return [g.conv(silu(g, group_norm(g, x, 8, "n"), "s"), 8, 3, "y")]


@unseen("healthy", f"{FLOATS} ort_int8 ov_int8")
def dense_net(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "sr")
    channels = 8
    for n in range(6):
        h = g.op("Relu", [g.conv(x, channels, 6, f"c{n}")], f"r{n}")
        x = g.op("Concat", [x, h], f"cat{n}", axis=1)
        channels += 6
    return [g.conv(g.op("AveragePool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2]), channels, 4, "y")]


@unseen("healthy", f"{FLOATS} ort_int8_dynamic")
def decoder_that_looks_at_an_encoder(g: Graph) -> Sequence[str]:
    memory = block(g, block(g, tokens(g), 32, "e0"), 32, "e1")
    x = g.input("z", g.random.normal(size=(2, 5, 32)).astype(np.float32))
    causal = k(g, "causal", np.triu(np.full((5, 5), -1e4), 1)[None])
    for n in range(2):
        x = g.attention(g.norm(x, 32, f"n{n}"), 32, f"s{n}", causal)
        q, key, v = g.dense(x, 32, 32, f"q{n}"), g.dense(memory, 32, 32, f"k{n}"), g.dense(memory, 32, 32, f"v{n}")
        raw = g.op("MatMul", [q, g.op("Transpose", [key], f"kt{n}", perm=[0, 2, 1])], f"raw{n}")
        p = g.op("Softmax", [g.op("Mul", [raw, k(g, f"d{n}", 32**-0.5)], f"sc{n}")], f"p{n}", axis=-1)
        x = g.mlp(g.op("Add", [x, g.op("MatMul", [p, v], f"mix{n}")], f"x{n}"), 32, f"m{n}")
    return [g.dense(g.norm(x, 32, "n"), 32, 24, "y")]


@unseen("healthy", f"{FLOATS} {WHOLE} ov_bf16")
def deep_perceptron(g: Graph) -> Sequence[str]:
    x = tokens(g)
    for n in range(10):
        x = g.mlp(x, 32, f"m{n}")
        if n % 3 == 2:
            x = g.norm(x, 32, f"n{n}")
    return [g.dense(x, 32, 4, "y")]


@unseen("healthy", f"{FLOATS}")
def detector_of_three_scales(g: Graph) -> Sequence[str]:
    x, outputs = g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "sr"), []
    for n in range(3):
        x = silu(g, g.conv(x, 8, 8, f"c{n}"), f"s{n}")
        head = g.conv(silu(g, g.conv(x, 8, 8, f"h{n}"), f"hs{n}"), 8, 5, f"o{n}")
        outputs.append(g.op("Sigmoid", [head], f"y{n}"))
        x = g.op("MaxPool", [x], f"p{n}", kernel_shape=[2, 2], strides=[2, 2])
    return outputs


@unseen("healthy", f"{FLOATS} ort_int8")
def convolutions_over_time(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.normal(size=(2, 8, 64)).astype(np.float32))
    for n in range(6):
        w = g.weight(f"w{n}", g.random.normal(size=(8, 8, 3)) / np.sqrt(24))
        h = g.op("Conv", [x, w], f"c{n}", pads=[2**n, 2**n], dilations=[2**n])
        gate = g.op("Mul", [g.op("Tanh", [h], f"t{n}"), g.op("Sigmoid", [h], f"s{n}")], f"g{n}")
        x = g.op("Add", [x, gate], f"x{n}")
    return [g.op("Conv", [x, g.weight("last", g.random.normal(size=(4, 8, 1)) / 3)], "y")]


# --- healthy, with something in them that looks like a fault


@unseen("benign", "ort_fp16_sim ort_bf16_sim ort_opt")
def mask_of_minus_infinity_in_a_weight(g: Graph) -> Sequence[str]:
    mask = g.weight("mask", np.triu(np.full((8, 8), -np.inf, np.float32), 1)[None])
    x = tokens(g)
    for n in range(2):
        x = g.attention(g.norm(x, 32, f"n{n}"), 32, f"a{n}", mask)
    return [g.dense(x, 32, 8, "y")]


@unseen("benign", "ort_fp16_sim ort_bf16_sim")
def coarse_branch_that_no_output_feels(g: Graph) -> Sequence[str]:
    """A branch is all wrong, and what is added of it is next to nothing."""
    x = g.mlp(g.mlp(tokens(g), 32, "a"), 32, "b")
    lost = g.op("Sub", [g.op("Add", [x, k(g, "o", 3000)], "far"), k(g, "o2", 3000)], "near")
    return [g.dense(g.op("Add", [x, g.op("Mul", [lost, k(g, "t", 1e-7)], "little")], "both"), 32, 8, "y")]


@unseen("benign", "ort_fp16_sim ort_int8")
def error_that_ends_before_the_output(g: Graph) -> Sequence[str]:
    x = g.mlp(tokens(g), 32, "a")
    side = g.op("Sin", [g.op("Mul", [x, k(g, "k", 900)], "fast")], "side")
    g.op("ReduceMean", [side], "unused", axes=[-1])
    return [g.dense(g.norm(x, 32, "n"), 32, 8, "y")]


@unseen("benign", "ort_fp16_sim ort_bf16_sim ort_int8")
def constant_beyond_what_is_used(g: Graph) -> Sequence[str]:
    x = g.mlp(tokens(g), 32, "a")
    return [g.mlp(g.op("Min", [x, k(g, "top", 3e38)], "capped"), 32, "y")]
