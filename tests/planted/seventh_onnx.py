"""A seventh batch in ONNX: front ends, scans, grouped attention, experts, transport and regions, in float16, bfloat16,
integers and of two files, with healthy ones that look dangerous; written and labelled before any of it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper

from planted.fourth_clean import block
from planted.onnx_faults import Graph, _attribute, image, tokens
from planted.onnx_further import _put, ints, k
from planted.unseen import Unseen
from planted.unseen_files import node, weight
from planted.unseen_files import pair as two_files
from planted.unseen_onnx import rms, rope, silu
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, seed=97, **more)


def pair(*words: Any, **more: Any) -> None:
    two_files(*words, cases=CASES, **more)


HALF = "ort_fp16_sim"
FLOATS = "ort_fp16_sim ort_bf16_sim"
OTHER = "files_differ other_arithmetic"


def mel_filters(bins: int, filters: int) -> Any:
    """Triangles over the bins, one beside the other."""
    centres = np.linspace(1, bins - 2, filters)
    width = (bins - 3) / filters
    return np.maximum(0, 1 - np.abs(np.arange(bins)[:, None] - centres) / width)


def power_spectrum(g: Graph, x: str, size: int = 256, hop: int = 128, window: float = 1.0) -> str:
    """Frames of samples [1, 1, N] through a Fourier basis, as a strided convolution: [1, frames, bins]."""
    turn = 2 * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size
    shape = np.hanning(size) * window
    real = g.op("Conv", [x, k(g, "cos.w", (np.cos(turn) * shape)[:, None])], "real", strides=[hop])
    imag = g.op("Conv", [x, k(g, "sin.w", (np.sin(turn) * shape)[:, None])], "imag", strides=[hop])
    power = g.op("Add", [g.op("Mul", [real, real], "re2"), g.op("Mul", [imag, imag], "im2")], "power")
    return g.op("Transpose", [power], "frames", perm=[0, 2, 1])


# --- float16: beyond its ends


@unseen("overflow", HALF, "re2 im2 power", "overflow", extra=("re2", "im2", "power", "mel"))
def mel_of_a_loud_tone(g: Graph) -> Sequence[str]:
    """Samples within one, a window of 1024: a tone's power is beyond 65504."""
    t = np.arange(8192)
    x = g.input("x", (0.95 * np.sin(0.3 * t) + 0.02 * g.random.normal(size=8192))[None, None].astype(np.float32))
    mel = g.op("MatMul", [power_spectrum(g, x, 1024, 512, 1.2), k(g, "mel.w", mel_filters(513, 40) * 0.02)], "mel")
    logged = g.op("Log", [g.op("Add", [mel, k(g, "eps", 1e-3)], "floor")], "logged")
    return [g.dense(logged, 40, 8, "y")]


@unseen("overflow", HALF, "grow decay", "overflow underflow", extra=("grow", "decay", "inner", "run", "state"))
def decay_that_is_taken_apart(g: Graph) -> Sequence[str]:
    """A linear scan by matrices: exp(a_i - a_j) is written as exp(a_i) * exp(-a_j)."""
    x = g.norm(tokens(g, 16, 40), 16, "n")
    step = g.op("Softplus", [g.dense(x, 16, 16, "dt")], "step")
    total = g.op("CumSum", [step, g.weight("axis", np.int64(1))], "total")
    decay = g.op("Exp", [g.op("Neg", [total], "down")], "decay")
    grow = g.op("Exp", [total], "grow")
    inner = g.op("Mul", [g.op("Mul", [x, step], "bx"), grow], "inner")
    state = g.op("Mul", [g.op("CumSum", [inner, "axis"], "run"), decay], "state")
    return [g.dense(state, 16, 6, "y")]


@unseen("overflow", HALF, "total", "overflow")
def smoothed_loss_over_a_vocabulary(g: Graph) -> Sequence[str]:
    """Label smoothing adds the log-probabilities of all 12,000 words up before it divides by their number."""
    x = g.norm(tokens(g), 32, "n")
    logp = g.op("LogSoftmax", [g.dense(x, 32, 12000, "logits")], "logp", axis=-1)
    total = g.op("ReduceSum", [logp, ints(g, "axes", -1)], "total", keepdims=0)
    smooth = g.op("Mul", [total, k(g, "share", -0.1 / 12000)], "smooth")
    gold = g.op("Gather", [logp, g.weight("gold", np.int64(17))], "gold_p", axis=2)
    return [g.op("Sub", [smooth, g.op("Mul", [gold, k(g, "rest", 0.9)], "nll")], "y")]


@unseen("overflow", HALF, "kv", "overflow", extra=("kv", "top"))
def linear_attention_of_a_long_text(g: Graph) -> Sequence[str]:
    """Keys and values of 3000 tokens are added up before the queries read them."""
    x = g.norm(tokens(g, 16, 3000), 16, "n")
    q = g.op("Softmax", [g.dense(x, 16, 16, "q")], "q_pos", axis=-1)
    key = g.op("Exp", [g.dense(x, 16, 16, "k")], "k_pos")
    v = g.op("Mul", [g.op("Sigmoid", [g.dense(x, 16, 16, "v")], "vs"), k(g, "wide", 60)], "values")
    kv = g.op("Einsum", [key, v], "kv", equation="bnd,bne->bde")
    total = g.op("ReduceSum", [key, ints(g, "axes", 1)], "ksum")
    top = g.op("Einsum", [q, kv], "top", equation="bnd,bde->bne")
    under = g.op("ReduceSum", [g.op("Mul", [q, total], "qk"), ints(g, "last", -1)], "under")
    return [g.dense(g.op("Div", [top, under], "mixed"), 16, 4, "y")]


@unseen("overflow", HALF, "precision", "overflow", extra=("precision", "weighted", "mahalanobis"))
def precision_of_a_sure_regressor(g: Graph) -> Sequence[str]:
    """exp(-log variance) of a head that is sure: e to the 11.8."""
    x = block(g, tokens(g), 32, "l0")
    mean = g.dense(x, 32, 4, "mean")
    bent = g.op("Tanh", [g.dense(x, 32, 4, "spread")], "bent")
    precision = g.op("Exp", [g.op("Sub", [k(g, "sure", 11), bent], "minus")], "precision")
    off = g.op("Sub", [mean, g.input("target", g.random.normal(size=(2, 8, 4)).astype(np.float32))], "off")
    weighted = g.op("Mul", [g.op("Mul", [precision, off], "weighted"), off], "mahalanobis")
    return [g.op("Mul", [weighted, k(g, "half", 1e-5)], "y")]


@unseen("underflow", HALF, "span", "weight_underflow", extra=("span", "flat"))
def smallest_to_largest_of_a_flat_map(g: Graph) -> Sequence[str]:
    """Attention maps are stretched to 0 to 1; one is flat, and 1e-8 keeps its zeros from 0 / 0."""
    x = g.op("Relu", [g.conv(image(g), 3, 4, "c")], "r")
    x = g.op("Mul", [x, k(g, "off", np.array([1, 1, 0, 1])[:, None, None])], "maps")
    low = g.op("ReduceMin", [x], "low", axes=[2, 3])
    span = g.op("Sub", [g.op("ReduceMax", [x], "high", axes=[2, 3]), low], "range")
    span = g.op("Add", [span, k(g, "eps", 1e-8)], "span")
    return [g.conv(g.op("Div", [g.op("Sub", [x, low], "above"), span], "flat"), 4, 4, "y")]


@unseen("underflow", HALF, "gibbs", "underflow", extra=("gibbs", "kv0", "ku0", "v0", "u0"))
def transport_by_sinkhorn(g: Graph) -> Sequence[str]:
    """exp(-cost / 0.05): below the type; marginals are divided by what became 0."""
    a, b = g.norm(tokens(g, 16, 12), 16, "n1"), g.norm(g.input("z", g.random.normal(size=(2, 12, 16)).astype(
        np.float32)), 16, "n2")  # fmt: skip
    likeness = g.op("MatMul", [a, g.op("Transpose", [b], "bt", perm=[0, 2, 1])], "likeness")
    cost = g.op("Sub", [k(g, "one", 1.1), g.op("Mul", [likeness, k(g, "d", 0.2 / 16)], "near")], "cost")
    gibbs = g.op("Exp", [g.op("Mul", [cost, k(g, "inv", -20)], "minus")], "gibbs")
    turned = g.op("Transpose", [gibbs], "turned", perm=[0, 2, 1])
    u = k(g, "start", np.full((2, 12, 1), 1 / 12))
    for n in range(2):
        v = g.op("Div", [k(g, f"b{n}", 1 / 12), g.op("MatMul", [turned, u], f"ku{n}")], f"v{n}")
        u = g.op("Div", [k(g, f"a{n}", 1 / 12), g.op("MatMul", [gibbs, v], f"kv{n}")], f"u{n}")
    plan = g.op("Mul", [g.op("Mul", [gibbs, u], "rows"), g.op("Transpose", [v], "vt", perm=[0, 2, 1])], "plan")
    return [g.op("MatMul", [plan, b], "y")]


# --- digits


@unseen("cancellation", HALF, "dot u v", "cancellation cancels amplified", extra=("dot", "u", "v", "apart"))
def distance_of_near_duplicates(g: Graph) -> Sequence[str]:
    """One minus the cosine of vectors that are all but the same."""
    x = tokens(g, 64)
    z = g.op("Add", [x, g.op("Mul", [g.input("e", g.random.normal(size=(2, 8, 64)).astype(np.float32)),
                                     k(g, "little", 0.03)], "moved")], "z")  # fmt: skip
    u, v = (g.op("LpNormalization", [one], name, axis=-1, p=2) for one, name in ((x, "u"), (z, "v")))
    dot = g.op("ReduceSum", [g.op("Mul", [u, v], "uv"), ints(g, "axes", -1)], "dot")
    apart = g.op("Sub", [k(g, "one", 1), dot], "apart")
    return [g.op("Mul", [apart, k(g, "scale", 1000)], "y")]


@unseen("amplified", HALF, "phase", "amplified cancellation coarse", extra=("phase", "step"))
def phase_of_an_oscillator(g: Graph) -> Sequence[str]:
    """A vocoder's source: the sine of a running sum of frequencies."""
    pitch = g.op("Sigmoid", [g.dense(tokens(g, 8, 800), 8, 4, "f0")], "pitch")
    step = g.op("Mul", [pitch, k(g, "turn", 0.9)], "step")
    phase = g.op("CumSum", [step, g.weight("axis", np.int64(1))], "phase")
    return [g.dense(g.op("Sin", [phase], "wave"), 4, 4, "y")]


@unseen("healthy", "ort_bf16_sim")  # labelled amplified: of 9.91, as it falls, 0.7 % are lost, which is predicted
def perplexity_of_a_batch(g: Graph) -> Sequence[str]:
    """e to the mean loss of a model that knows nothing: of 9.4, bfloat16 keeps one digit behind the point."""
    x = g.norm(tokens(g), 32, "n")
    logp = g.op("LogSoftmax", [g.dense(x, 32, 12000, "logits")], "logp", axis=-1)
    nll = g.op("Neg", [g.op("Gather", [logp, g.weight("gold", np.int64(17))], "gold_p", axis=2)], "nll")
    mean = g.op("ReduceMean", [nll], "mean_nll", axes=[1], keepdims=0)
    return [g.op("Exp", [mean], "y")]


@unseen("amplified", "ort_bf16_sim", "boxes", "amplified coarse cancellation", extra=("boxes", "moved", "anchors"))
def regions_of_a_wide_image(g: Graph) -> Sequence[str]:
    """Boxes around pixel 450: bfloat16 has every second one, and a region is 30 wide."""
    x = g.op("Tanh", [g.op("Conv", [g.input("x", g.random.normal(size=(1, 3, 64, 64)).astype(np.float32)), k(
        g, "w", g.random.normal(size=(8, 3, 3, 3)) / 3)], "c", pads=[1, 1, 1, 1])], "t")  # fmt: skip
    corner = g.random.uniform(400, 460, size=(12, 2))
    anchors = np.concatenate([corner, corner + 34], 1)
    delta = g.op("Tanh", [g.dense(g.input("z", g.random.normal(size=(12, 16)).astype(np.float32)), 16, 4, "d")], "dt")
    boxes = g.op("Add", [k(g, "anchors", anchors), delta], "boxes")
    roi = g.op("RoiAlign", [x, boxes, g.weight("which", np.zeros(12, np.int64))], "roi", output_height=4,
               output_width=4, spatial_scale=0.125, sampling_ratio=2)  # fmt: skip
    return [g.dense(g.op("Flatten", [roi], "flat"), 128, 6, "y")]


# --- integers


@unseen("int8", "ort_int8", "gu", "outlier_channel coarse", extra=("gu", "up", "gate", "gate_gate"))
def spike_of_a_gated_unit(g: Graph) -> Sequence[str]:
    """One token makes gate times up two thousand times what it is elsewhere."""
    x = tokens(g)
    x = g.norm(x, 32, "n")
    up, act = g.dense(x, 32, 64, "u"), silu(g, g.dense(x, 32, 64, "g"), "gate")
    spike = np.ones((2, 8, 64))
    spike[0, 3, 11] = 2000
    both = g.op("Mul", [g.op("Mul", [act, up], "product"), k(g, "spike", spike)], "gu")
    g.dense(both, 64, 32, "down")
    g.weights["down.w"][11] = 1e-4
    return [g.dense(g.op("Tanh", ["down"], "t"), 32, 8, "y")]


# the sharp row is a channel of its axis: the label had forgotten that cause
@unseen("int8", "ort_int8", "prob", "coarse underflow outlier_channel", extra=("prob",))
def probabilities_of_a_long_row(g: Graph) -> Sequence[str]:
    """Most rows look at 400 places alike, one looks at one: a step is more than a probability."""
    x = g.norm(tokens(g, 16, 400), 16, "n")
    q, key, v = (g.dense(x, 16, 16, one) for one in "qkv")
    g.weights["v.b"] += 0.5
    sharp = np.full((400, 1), 0.05)
    sharp[0] = 60
    q = g.op("Mul", [q, k(g, "sharp", sharp)], "sharpened")
    raw = g.op("MatMul", [q, g.op("Transpose", [key], "kt", perm=[0, 2, 1])], "raw")
    prob = g.op("Softmax", [raw], "prob", axis=-1)
    return [g.dense(g.op("MatMul", [prob, v], "mixed"), 16, 4, "y")]


@unseen("int8", "ort_int8", "p", "coarse underflow saturation amplified", extra=("p", "floor", "logits"))
def log_of_a_quantised_probability(g: Graph) -> Sequence[str]:
    """Sigmoids of -9 to 0 are held in steps of 1/255 before their logarithm."""
    x = g.norm(tokens(g), 32, "n")
    logits = g.op("Sub", [g.dense(x, 32, 16, "a", 1.5), k(g, "rare", 4)], "logits")
    p = g.op("Sigmoid", [logits], "p")
    return [g.op("Log", [g.op("Add", [p, k(g, "eps", 1e-6)], "floor")], "y")]


@unseen("int8", "ort_int8_dynamic", "lstm", "outlier_channel coarse", extra=("lstm",))
def recurrence_with_one_loud_row(g: Graph) -> Sequence[str]:
    """A tensor of an LSTM's weights in which one input is read 300 times as strongly, and is small."""
    x = g.op("Transpose", [tokens(g, 16, 6)], "steps", perm=[1, 0, 2])
    small = np.ones(16)
    small[5] = 1 / 300
    x = g.op("Mul", [x, k(g, "small", small)], "scaled")
    w, r = g.random.normal(size=(1, 64, 16)) / 2, g.random.normal(size=(1, 64, 16)) / 4
    w[:, :, 5] *= 300
    g.nodes.append(helper.make_node("LSTM", [x, k(g, "lstm.w", w), k(g, "lstm.r", r)], ["lstm"], name="node_lstm",
                                    hidden_size=16))  # fmt: skip
    return [g.dense(g.op("Squeeze", ["lstm", ints(g, "one", 1)], "h"), 16, 4, "y")]


@unseen("int8", "ort_int8", "x scaled", "outlier_channel coarse", extra=("x", "scaled", "clipped"))
def extremes_before_a_clip(g: Graph) -> Sequence[str]:
    """Ten dead pixels of 4000 are cut off, once their range was measured."""
    x = g.random.normal(size=(2, 3, 16, 16)).astype(np.float32)
    x.reshape(-1)[::150] = 4000
    scaled = g.op("Mul", [g.input("x", x), k(g, "sd", [[[0.9]], [[1.1]], [[1.0]]])], "scaled")
    clipped = g.op("Clip", [scaled, k(g, "lo", -3), k(g, "hi", 3)], "clipped")
    x2 = g.op("Relu", [g.conv(clipped, 3, 8, "c1")], "r1")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [g.conv(x2, 8, 8, "c2")], "gap")], "flat"), 8, 5, "y")]


# --- two files


def heads(g: Graph, x: str, name: str, count: int) -> str:
    """[2, 8, count * 8] as [2, count, 8, 8]."""
    shaped = g.op("Reshape", [x, ints(g, f"{name}.s", 2, 8, count, 8)], f"{name}_s")
    return g.op("Transpose", [shaped], f"{name}_h", perm=[0, 2, 1, 3])


def grouped(g: Graph, cap: float = 0.0) -> Sequence[str]:
    """A layer with four heads of queries and two of keys and values, positions turned, and a gated unit."""
    x = tokens(g)
    n = rms(g, x, 32, "n1")
    q, key, v = g.dense(n, 32, 32, "q"), g.dense(n, 32, 16, "k"), g.dense(n, 32, 16, "v")
    q, key = (rope(g, heads(g, one, name, count), 8, 4, f"{name}_r") for one, name, count in
              ((q, "q", 4), (key, "k", 2)))  # fmt: skip
    which = g.weight("which", np.array([0, 0, 1, 1], np.int64))
    key = g.op("Gather", [key, which], "k_all", axis=1)
    v = g.op("Gather", [heads(g, v, "v", 2), which], "v_all", axis=1)
    raw = g.op("MatMul", [q, g.op("Transpose", [key], "kt", perm=[0, 1, 3, 2])], "raw")
    score = g.op("Mul", [raw, k(g, "d", 8**-0.5)], "score")
    if cap:
        bent = g.op("Tanh", [g.op("Mul", [score, k(g, "cap.i", 1 / cap)], "uncapped")], "bent")
        score = g.op("Mul", [bent, k(g, "cap", cap)], "capped")
    prob = g.op("Softmax", [g.op("Add", [score, k(g, "causal", np.triu(np.full((8, 8), -1e4), 1))], "m")], "prob",
                axis=-1)  # fmt: skip
    mix = g.op("Transpose", [g.op("MatMul", [prob, v], "mix")], "mix_t", perm=[0, 2, 1, 3])
    x = g.op("Add", [x, g.dense(g.op("Reshape", [mix, ints(g, "m.s", 2, 8, 32)], "joined"), 32, 32, "o")], "h")
    n = rms(g, x, 32, "n2")
    both = g.op("Mul", [silu(g, g.dense(n, 32, 64, "g"), "act"), g.dense(n, 32, 64, "u")], "gu")
    return [g.dense(g.op("Add", [x, g.dense(both, 64, 32, "down")], "l"), 32, 8, "y")]


pair("heads_tiled_in_place_of_repeated", grouped, lambda g: g.weights.update(which=np.array([0, 1, 0, 1], np.int64)),
     "k_all v_all", also=("k_all", "v_all"))  # fmt: skip
pair("scale_of_two_digits", grouped, _put("d", (), 0.35), "score")
pair("scale_of_two_digits_in_float16", grouped, _put("d", (), 0.35), "score", mode="ort_fp16_sim")
pair("gate_and_up_swapped", grouped, lambda g: g.weights.update({"g.w": g.weights["u.w"], "u.w": g.weights["g.w"]}),
     "g_mm u_mm", also=("g_mm", "u_mm"), extra=("g", "u"))  # fmt: skip


def small_rms(g: Graph) -> Sequence[str]:
    """A root mean square of activations of a hundredth."""
    x = g.op("Mul", [g.dense(tokens(g), 32, 32, "a"), k(g, "few", 0.01)], "small")
    return [g.dense(g.mlp(rms(g, x, 32, "n"), 32, "m"), 32, 8, "y")]


pair("epsilon_of_a_root_mean_square", small_rms, _put("n.eps", (), 1e-5), "n_var")
pair("epsilon_of_a_root_mean_square_fused", small_rms, _put("n.eps", (), 1e-5), "n_var n_root n_inv n_n n",
     mode="ort_opt")  # fmt: skip


def state_space(soft: bool) -> Callable[[Graph], Sequence[str]]:
    """A selective scan over 10 tokens; its step passes a softplus, or an exporter lost it."""

    def build(g: Graph) -> Sequence[str]:
        x = g.norm(tokens(g, 16, 10), 16, "n")
        step = g.dense(x, 16, 16, "dt_in", 0.5)
        step = g.op("Softplus" if soft else "Relu", [step], "dt")
        rate = g.op("Neg", [g.op("Exp", [k(g, "a_log", np.log(np.arange(1, 17)) / 4)], "rate")], "a")
        keep = g.op("Transpose", [g.op("Exp", [g.op("Mul", [step, rate], "da")], "abar")], "keep", perm=[1, 0, 2])
        inner = g.op("Transpose", [g.op("Mul", [step, x], "bx")], "inner", perm=[1, 0, 2])
        body = helper.make_graph(
            [helper.make_node("Mul", ["s_in", "a_in"], ["kept"], name="node_kept"),
             helper.make_node("Add", ["kept", "b_in"], ["s_out"], name="node_s_out"),
             helper.make_node("Identity", ["s_out"], ["seen"], name="node_seen")],
            "step",
            [helper.make_tensor_value_info(one, 1, [2, 16]) for one in ("s_in", "a_in", "b_in")],
            [helper.make_tensor_value_info(one, 1, [2, 16]) for one in ("s_out", "seen")],
        )  # fmt: skip
        g.nodes.append(helper.make_node("Scan", [k(g, "s0", np.zeros((2, 16))), keep, inner], ["last", "states"],
                                        name="node_scan", body=body, num_scan_inputs=2))  # fmt: skip
        return [g.dense(g.op("Transpose", ["states"], "back", perm=[1, 0, 2]), 16, 6, "y")]

    return build


pair("softplus_of_a_step_left_out", state_space(True), state_space(False), "dt", OTHER, other=True)


def listener(g: Graph) -> Sequence[str]:
    """A mel front end, a recurrence, and log-probabilities of characters."""
    x = g.input("x", g.random.normal(size=(1, 1, 2048)).astype(np.float32) * 0.001)
    mel = g.op("MatMul", [power_spectrum(g, x), k(g, "mel.w", mel_filters(129, 20))], "mel")
    x = g.op("Log", [g.op("Max", [mel, k(g, "eps", 1e-5)], "floor")], "logged")
    x = g.op("Transpose", [x], "steps", perm=[1, 0, 2])
    w, r = g.random.normal(size=(1, 64, 20)) / 6, g.random.normal(size=(1, 64, 16)) / 4
    b = g.random.normal(size=(1, 128)) * 0.1
    b[:, 32:48] += 1
    g.nodes.append(helper.make_node("LSTM", [x, k(g, "lstm.w", w), k(g, "lstm.r", r), k(g, "lstm.b", b)], ["lstm"],
                                    name="node_lstm", hidden_size=16))  # fmt: skip
    h = g.op("Squeeze", ["lstm", ints(g, "one", 1)], "h")
    return [g.op("LogSoftmax", [g.dense(h, 16, 12, "logits")], "y", axis=-1)]


pair("filters_without_their_areas", listener, weight("mel.w", lambda w: w / w.sum(0)), "mel")
pair("forget_bias_left_out", listener, _put("lstm.b", (0, slice(32, 48)), 0.0), "lstm")
pair("axis_of_log_probabilities", listener, _attribute("y", axis=0), "y")
pair("floor_of_a_logarithm", listener, _put("eps", (), 1e-3), "floor")


def next_generation(g: Graph) -> Sequence[str]:
    """Two blocks of a depthwise convolution, a norm over channels, a gelu and a scale of the branch."""
    g.opset = 20
    x = g.conv(image(g), 3, 8, "stem")
    for n in range(2):
        dw = g.op("Conv", [x, k(g, f"dw{n}.w", g.random.normal(size=(8, 1, 7, 7)) / 7), k(g, f"dw{n}.b", np.zeros(8))],
                  f"dw{n}", group=8, pads=[3, 3, 3, 3])  # fmt: skip
        h = g.norm(g.op("Transpose", [dw], f"last{n}", perm=[0, 2, 3, 1]), 8, f"n{n}")
        h = g.dense(g.op("Gelu", [g.dense(h, 8, 32, f"up{n}", 1.5)], f"gelu{n}"), 32, 8, f"down{n}")
        h = g.op("Mul", [h, k(g, f"gamma{n}", np.linspace(1e-6, 0.5, 8) * (n + 1))], f"scaled{n}")
        x = g.op("Add", [x, g.op("Transpose", [h], f"first{n}", perm=[0, 3, 1, 2])], f"b{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat"), 8, 5, "y")]


def quick(g: Graph) -> None:
    """x * sigmoid(1.702 x) in place of the second gelu."""
    place = g.nodes.index(node(g, "gelu1"))
    gate = [helper.make_node("Mul", ["up1", k(g, "steep", 1.702)], ["steeper"], name="node_steeper"),
            helper.make_node("Sigmoid", ["steeper"], ["opened"], name="node_opened"),
            helper.make_node("Mul", ["up1", "opened"], ["gelu1"], name="node_gelu1")]  # fmt: skip
    g.nodes[place : place + 1] = gate


def through_bfloat16(value: Any) -> Any:
    return (value.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


pair("quick_gelu_in_place_of_gelu", next_generation, quick, "gelu1", OTHER)
pair("dilation_of_a_depthwise", next_generation, _attribute("dw1", dilations=[2, 2], pads=[6, 6, 6, 6]), "dw1")
pair("scales_of_two_branches_swapped", next_generation, lambda g: g.weights.update(
    gamma0=g.weights["gamma1"], gamma1=g.weights["gamma0"]), "scaled0 scaled1",
     also=("scaled0", "scaled1"))  # fmt: skip
for way in ("ort_fp32", "ort_opt"):
    pair("weight_cut_to_bfloat16", next_generation, weight("up1.w", through_bfloat16), "up1_mm up1 gelu1", mode=way)


def experts(g: Graph, offset: float = 0.0) -> Sequence[str]:
    """Four experts whose weights are one tensor, each token's shares of them by a softmax."""
    x = g.norm(tokens(g), 32, "n")
    share = g.op("Softmax", [g.op("Mul", [g.dense(x, 32, 4, "router"), k(g, "hot", 2)], "routed")], "share", axis=-1)
    flat = g.op("Reshape", [x, ints(g, "flat.s", 1, 16, 32)], "flat")
    up = g.op("MatMul", [flat, k(g, "up.w", g.random.normal(size=(4, 32, 48)) / 6)], "up")
    down = g.op("MatMul", [silu(g, up, "act"), k(g, "down.w", g.random.normal(size=(4, 48, 32)) / 7)], "down")
    shares = g.op("Reshape", [g.op("Transpose", [share], "share_t", perm=[2, 0, 1]), ints(g, "sh.s", 4, 16, 1)], "sh")
    mixed = g.op("ReduceSum", [g.op("Mul", [down, shares], "weighted"), ints(g, "axes", 0)], "mixed", keepdims=0)
    return [g.dense(g.norm(mixed, 32, "n2"), 32, 6, "y")]


pair("experts_off_by_one", experts, weight("down.w", lambda w: np.roll(w, 1, axis=0)), "down")
pair("experts_off_by_one_in_int8", experts, weight("down.w", lambda w: np.roll(w, 1, axis=0)), "down", mode="ort_int8",
     extra=("weighted", "mixed"))  # fmt: skip


def likeness(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 16, "a")
    u = g.op("LpNormalization", [x], "u", axis=-1, p=2)
    cosine = g.op("MatMul", [u, g.op("Transpose", [u], "ut", perm=[0, 2, 1])], "cosine")
    return [g.op("MatMul", [g.op("Softmax", [g.op("Mul", [cosine, k(g, "t", 5)], "hot")], "p", axis=-1), x], "y")]


pair("power_of_a_unit_norm", likeness, _attribute("u", p=1), "u")


# --- healthy, and dangerous to look at


@unseen("healthy", f"{FLOATS} ort_opt")
def log_mel_with_a_floor_below_its_largest(g: Graph) -> Sequence[str]:
    """Silence is 0 in float16 and minus infinity behind the logarithm; the floor lies eight below the largest."""
    sound = g.random.normal(size=4096) * np.where(np.arange(4096) < 2048, 0.5, 1e-6)
    x = g.input("x", sound[None, None].astype(np.float32))
    mel = g.op("MatMul", [power_spectrum(g, x), k(g, "mel.w", mel_filters(129, 20))], "mel")
    logged = g.op("Log", [g.op("Max", [mel, k(g, "eps", 1e-10)], "floor")], "logged")
    floor = g.op("Sub", [g.op("ReduceMax", [logged], "top", axes=[1, 2]), k(g, "eight", 8)], "bottom")
    moved = g.op("Add", [g.op("Max", [logged, floor], "cut"), k(g, "four", 4)], "moved")
    scaled = g.op("Mul", [moved, k(g, "q", 0.25)], "scaled")
    return [g.dense(scaled, 20, 8, "y")]


@unseen("healthy", f"{FLOATS} ort_opt ort_int8_dynamic")
def grouped_heads_with_capped_scores(g: Graph) -> Sequence[str]:
    return grouped(g, cap=30.0)


unseen("healthy", f"{FLOATS} ort_opt ort_int8", opset=20)(next_generation)
unseen("healthy", f"{FLOATS} ort_int8")(experts)
unseen("healthy", "ort_fp16")(smallest_to_largest_of_a_flat_map)


@unseen("healthy", f"{FLOATS} ort_opt")
def scan_of_a_state_space(g: Graph) -> Sequence[str]:
    return state_space(True)(g)


@unseen("healthy", f"{HALF} ort_int8")
def pixels_of_a_shuffle(g: Graph) -> Sequence[str]:
    """An upscaler whose output is a picture of whole numbers."""
    x = g.op("Relu", [g.conv(image(g), 3, 12, "c1")], "r1")
    x = g.op("DepthToSpace", [g.conv(x, 12, 12, "c2")], "up", blocksize=2, mode="CRD")
    x = g.op("Clip", [g.op("Mul", [g.op("Sigmoid", [x], "s"), k(g, "f", 255)], "wide"), k(g, "lo", 0), k(g, "hi", 255)],
             "cut")  # fmt: skip
    return [g.op("Cast", [g.op("Round", [x], "whole")], "y", to=2)]


@unseen("healthy", FLOATS)
def points_refined_in_logits(g: Graph) -> Sequence[str]:
    """log(p / (1 - p)) of reference points in the middle of an image, with an epsilon that float16 cannot hold."""
    p = g.op("Sigmoid", [g.dense(tokens(g), 32, 4, "a")], "p")
    low = g.op("Max", [p, k(g, "eps", 1e-8)], "low")
    high = g.op("Max", [g.op("Sub", [k(g, "one", 1), p], "rest"), "eps"], "high")
    logit = g.op("Log", [g.op("Div", [low, high], "odds")], "logit")
    return [g.op("Sigmoid", [g.op("Add", [logit, g.dense("x", 32, 4, "delta")], "refined")], "y")]


@unseen("healthy", HALF)
def depth_that_is_clipped(g: Graph) -> Sequence[str]:
    """Millimetres up to 65535, which float16 does not hold, are cut off at 10000."""
    x = g.random.uniform(300, 9000, size=(2, 1, 16, 16)).astype(np.float32)
    x.reshape(-1)[::50] = 65535
    x = g.op("Clip", [g.input("x", x), k(g, "lo", 300), k(g, "hi", 10000)], "cut")
    x = g.op("Relu", [g.conv(g.op("Mul", [x, k(g, "m", 1e-4)], "unit"), 1, 8, "c1")], "r1")
    return [g.conv(x, 8, 4, "y")]


@unseen("healthy", "ort_int8_dynamic ort_fp16_sim ort_bf16_sim")
def listener_of_two_layers(g: Graph) -> Sequence[str]:
    x = g.op("Transpose", [tokens(g, 16, 10)], "steps", perm=[1, 0, 2])
    for n in range(2):
        w, r = g.random.normal(size=(1, 64, 16)) / 4, g.random.normal(size=(1, 64, 16)) / 4
        g.nodes.append(helper.make_node("LSTM", [x, k(g, f"w{n}", w), k(g, f"r{n}", r)], [f"lstm{n}"],
                                        name=f"node_lstm{n}", hidden_size=16))  # fmt: skip
        x = g.op("Squeeze", [f"lstm{n}", ints(g, f"one{n}", 1)], f"h{n}")
    return [g.op("LogSoftmax", [g.dense(x, 16, 8, "logits")], "y", axis=-1)]


@unseen("healthy", HALF)
def best_boxes_by_their_distances(g: Graph) -> Sequence[str]:
    """Sides of boxes are expectations over 16 bins; the five best of 64 places are taken by scores that lie apart."""
    x = g.op("Relu", [g.op("Conv", [image(g), k(g, "s.w", g.random.normal(size=(8, 3, 3, 3)) / 5)], "stem",
                           strides=[2, 2], pads=[1, 1, 1, 1])], "sr")  # fmt: skip
    side = g.op("Reshape", [g.conv(x, 8, 64, "box", 3.0), ints(g, "b.s", 2, 4, 16, 64)], "bins")
    bins = g.op("Mul", [g.op("Softmax", [side], "p", axis=2), k(g, "place", np.arange(16)[:, None])], "binned")
    side = g.op("ReduceSum", [bins, ints(g, "two", 2)], "sides", keepdims=0)
    lift = np.tile(np.arange(64) * 0.37 % 24 - 12, (2, 1))
    score = g.op("Reshape", [g.conv(x, 8, 1, "cls", 0.01), ints(g, "c.s", 2, 64)], "logit")
    score = g.op("Add", [score, k(g, "lift", lift)], "lifted")
    parts = ["best", "where"]
    g.nodes.append(helper.make_node("TopK", [score, ints(g, "five", 5)], parts, name="node_topk", axis=-1))
    at = g.op("Expand", [g.op("Unsqueeze", ["where", ints(g, "u", 1)], "where1"), ints(g, "e", 2, 4, 5)], "where4")
    return [g.op("Mul", [g.op("GatherElements", [side, at], "chosen", axis=2), k(g, "stride", 2)], "y"),
            g.op("Sigmoid", ["best"], "score")]  # fmt: skip
