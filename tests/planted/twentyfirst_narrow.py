"""A twenty-first batch, second part: narrow types, 8 and 4 bits, OpenVINO, LiteRT, folders that a board wrote. Who,
cause and fact of each were measured without the tool (``python tests/planted/twentyfirst_truth.py``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from planted import fourteenth_onnx
from planted.fifteenth_onnx import SEVEN, _bytes, _detail, _put
from planted.fourteenth_onnx import _fed
from planted.onnx_faults import Array, Graph
from planted.onnx_further import ints, k
from planted.twelfth.case import DIFFER, Thread, labelled
from planted.twentyfirst_onnx import OTHER, Made, Typed, _response

CASES: list[Thread] = []
case = functools.partial(fourteenth_onnx.case, cases=CASES)

# --- float16 and bfloat16


@case("overflow", "ort_fp16_sim", "e2 e_2 up down", "overflow", extra="e2 e_2 up down ratio mish e")
def mish_by_one_exponential(g: Graph) -> Sequence[str]:
    """x (e^2 + 2 e) / (e^2 + 2 e + 2) of x up to 11: e^2 is up to 3.6e9, 2 e 1.2e5, both beyond 65504,
    and Inf / Inf is NaN. With these two and both sums in FP32 0.0004 is left."""
    x = g.op("Clip", [g.dense(_fed(g, 6, 16), 16, 16, "a", 5.0), k(g, "lo", -11), k(g, "hi", 11)], "held")
    e = g.op("Exp", [x], "e")
    up = g.op("Add", [g.op("Mul", [e, e], "e2"), g.op("Mul", [e, k(g, "two", 2)], "e_2")], "up")
    ratio = g.op("Div", [up, g.op("Add", [up, "two"], "down")], "ratio")
    return [g.dense(g.op("Mul", [x, ratio], "mish"), 16, 4, "y")]


@case("formula", "ort_bf16_sim", "upper lower near far",
      "coarse cancellation cancels amplified stepped found_by_repair",
      extra="upper lower chance near far")  # fmt: skip
def chance_of_one_level_of_a_mixture(g: Graph) -> Sequence[str]:
    """sigmoid(x + 1/255) - sigmoid(x - 1/255), a level's chance (PixelCNN++): two numbers 0.002 apart. All four
    in FP32 leave 0.002 of 0.83, any two 0.34 or more."""
    x = g.dense(_fed(g, 8, 6), 6, 6, "x0")
    half = k(g, "half", 1 / 255)
    upper = g.op("Sigmoid", [g.op("Add", [x, half], "near")], "upper")
    lower = g.op("Sigmoid", [g.op("Sub", [x, half], "far")], "lower")
    return [g.op("Mul", [g.op("Sub", [upper, lower], "chance"), k(g, "many", 255)], "y")]


@case("overflow", "ort_fp16_sim", "d2 held", "overflow", extra="d2 held near total share")  # fmt: skip
def neighbours_by_student_s_kernel(g: Graph) -> Sequence[str]:
    """1 / (1 + d^2) over its sum (t-SNE) of distances of 300 to 900: squares of 90,000 and more are beyond float16,
    and their sums with 1. With both in FP32 0.005 is left, with the reciprocals 0.0005."""
    x = g.input("d", g.random.uniform(300, 900, (6, 8)).astype(np.float32))
    d2 = g.op("Mul", [x, x], "d2")
    near = g.op("Reciprocal", [g.op("Add", [d2, k(g, "one", 1)], "held")], "near")
    total = g.op("ReduceSum", [near, ints(g, "ax", 1)], "total", keepdims=1)
    return [g.dense(g.op("Div", [near, total], "share"), 8, 4, "y")]


@case("formula", "ort_bf16_sim", "square rho", "coarse cancellation cancels amplified stepped found_by_repair "
      "reads_rounded", extra="square rest rho")  # fmt: skip
def deviation_of_one_price_given_another(g: Graph) -> Sequence[str]:
    """sqrt(1 - rho^2) of correlations from 0.99 to 0.999: bfloat16 steps by 0.004 there."""
    rho = g.input("rho", g.random.uniform(0.99, 0.999, (6, 5)).astype(np.float32))
    rest = g.op("Sub", [k(g, "one", 1), g.op("Mul", [rho, rho], "square")], "rest")
    return [g.op("Sqrt", [rest], "y")]


@case("formula", "ort_fp16_sim", "power", "coarse cancellation cancels amplified stepped found_by_repair "
      "rounded_constant constant_rounded", extra="power less")  # fmt: skip
def incomes_by_box_and_cox(g: Graph) -> Sequence[str]:
    """(x^0.01 - 1) / 0.01 of x from 0.5 to 3: powers from 0.993 to 1.011, where float16 steps by 0.0005 to 0.001."""
    x = g.input("x", g.random.uniform(0.5, 3, (8, 6)).astype(np.float32))
    less = g.op("Sub", [g.op("Pow", [x, k(g, "lambda", 0.01)], "power"), k(g, "one", 1)], "less")
    return [g.op("Div", [less, "lambda"], "y")]


@case("healthy", "ort_fp16_sim")
def words_that_look_at_a_picture(g: Graph) -> Sequence[str]:
    """Cross attention of five words over a picture's sixteen places."""
    words = g.input("words", g.random.normal(size=(1, 5, 16)).astype(np.float32))
    x = g.op("Reshape", [g.conv(_fed(g, 1, 3, 4, 4), 3, 16, "c"), ints(g, "to", 1, 16, 16)], "flat")
    score = g.op("Mul", [g.op("MatMul", [g.dense(words, 16, 16, "q"), x], "raw"), k(g, "s", 0.25)], "score")
    value = g.op("Transpose", [x], "value", perm=[0, 2, 1])
    mixed = g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), value], "mixed")
    return [g.dense(g.op("Add", [words, mixed], "skip"), 16, 4, "y")]


@case("healthy", "ort_fp16_sim")
def net_with_a_response_norm(g: Graph) -> Sequence[str]:
    """A convolution, a global response norm, a skip."""
    return _response(g, [2, 3])


@case("healthy", "ort_bf16_sim")
def state_that_decays_step_by_step(g: Graph) -> Sequence[str]:
    """Six steps of h = 0.9 h + x, written out, and a head."""
    x, h = _fed(g, 4, 6, 12), ""
    for n in range(6):
        one = g.op("Gather", [x, g.weight(f"at{n}", np.array(n, np.int64))], f"x{n}", axis=1)
        h = g.op("Add", [g.op("Mul", [h, k(g, "decay", 0.9)], f"kept{n}"), one], f"h{n}") if h else one
    return [g.dense(g.op("Tanh", [h], "t"), 12, 4, "y")]


@case("healthy", "ort_fp16_sim")
def odds_of_a_rating(g: Graph) -> Sequence[str]:
    """1 / (1 + 10^(d / 400)) of differences of up to 2400: 10^6 overflows, and its share of 1e-6 becomes 0."""
    d = g.input("d", np.concatenate([g.random.uniform(-600, 600, 39), [2400]]).reshape(8, 5).astype(np.float32))
    odds = g.op("Pow", [k(g, "ten", 10), g.op("Mul", [d, k(g, "unit", 1 / 400)], "steps")], "odds")
    return [g.dense(g.op("Reciprocal", [g.op("Add", [odds, k(g, "one", 1)], "held")], "win"), 5, 3, "y")]


# --- 8 and 4 bits

_COARSE8 = ("coarse coarse_scale outlier_channel constant_scale weight_outlier reads_rounded found_by_repair "
            "amplified weight_scale saturation")


@case("int8", "ort_int8", "held d", _COARSE8, options=SEVEN, offered=None,
      extra="held d depth")  # fmt: skip
def depth_from_a_disparity_of_one_scale(g: Graph) -> Sequence[str]:
    """1 / d of disparities of which most are 0.03 to 0.2 and one is 12: the scale's step is 0.05."""
    d = g.random.uniform(0.03, 0.2, (8, 10))
    d[0, 0] = 12
    held = g.op("Add", [g.input("d", d.astype(np.float32)), k(g, "tiny", 1e-3)], "held")
    depth = g.op("Reciprocal", [held], "depth")
    return [g.dense(depth, 10, 6, "y")]


@case("int8", "ort_int8", "c r", _COARSE8, options=[*SEVEN, "--option", "per_channel=false"], offered=None,
      extra="c r y a ra")  # fmt: skip
def filters_folded_with_a_dead_channel(g: Graph) -> Sequence[str]:
    """A norm of a dead channel was folded in: its filters are 150 times the others under the tensor's one scale; its
    input is nearly 0. Left out alone it leaves 0.69, with the layer before or behind it 0.04 and less."""
    x = _fed(g, 2, 3, 10, 10)
    a = g.conv(x, 3, 8, "a")
    g.weights["a.w"][3] *= 1e-3
    x = g.op("Relu", [a], "ra")
    c = g.conv(x, 8, 8, "c")
    g.weights["c.w"][:, 3] *= 150
    return [g.conv(g.op("Relu", [c], "r"), 8, 4, "y")]


@case("int8", "ort_int8_dynamic", "y_mm y", f"{_COARSE8} packed", options=SEVEN, offered=None,
      extra="y_mm y")  # fmt: skip
def rare_classes_under_one_scale(g: Graph) -> Sequence[str]:
    """A head whose last eight classes have weights of a 400th: half a step of the matrix's one scale, all 0."""
    x = g.op("Tanh", [g.dense(_fed(g, 12, 24), 24, 32, "a")], "t")
    y = g.dense(x, 32, 16, "y")
    g.weights["y.w"][:, 8:] /= 400
    g.weights["y.b"][8:] = 0
    return [y]


@case("healthy", "ort_int8", options=SEVEN)
def gated_filters_in_static_int8(g: Graph) -> Sequence[str]:
    """Two convolutions, a sigmoid gate of one by the other, a pool, a classifier."""
    x = _fed(g, 4, 3, 10, 10)
    x = g.op("Mul", [g.conv(x, 3, 12, "a"), g.op("Sigmoid", [g.conv(x, 3, 12, "b")], "gate")], "gated")
    x = g.op("Flatten", [g.op("GlobalAveragePool", [g.op("Relu", [g.conv(x, 12, 12, "c")], "r")], "p")], "flat")
    return [g.dense(x, 12, 6, "y", 3)]


@case("healthy", "ort_int8_dynamic", options=SEVEN)
def two_towers_of_words_in_dynamic_int8(g: Graph) -> Sequence[str]:
    """Two inputs, a layer each, their difference and product, a head."""
    a = g.op("Tanh", [g.dense(_fed(g, 6, 24), 24, 32, "a")], "ta")
    b = g.op("Tanh", [g.dense(g.input("z", g.random.normal(size=(6, 24)).astype(np.float32)), 24, 32, "b")], "tb")
    both = g.op("Concat", [g.op("Sub", [a, b], "less"), g.op("Mul", [a, b], "times")], "both", axis=1)
    return [g.dense(both, 64, 6, "y")]


@case("int4", "ort_int4", "y a", f"{_COARSE8} few_bits packed", offered=None, extra="y a r")  # fmt: skip
def ternary_layers_in_four_bits(g: Graph) -> Sequence[str]:
    """Weights of -1, 0 and 1 times a scale for each output, as of BitNet, by a quantiser whose scale is the largest /
    8, so that +1 becomes 7/8. Both layers leave 0.26, the last left out 0.067, the first 0.25."""
    x = _fed(g, 4, 128)
    w = g.random.integers(-1, 2, (128, 64)) * g.random.uniform(0.05, 0.2, 64)
    h = g.op("Relu", [g.op("MatMul", [x, k(g, "a.w", w)], "a")], "r")
    v = g.random.integers(-1, 2, (64, 32)) * g.random.uniform(0.05, 0.2, 32)
    return [g.op("MatMul", [h, k(g, "y.w", v)], "y")]


# --- OpenVINO


def _ir(name: str, truth: str, build: Any, change: Callable[[str], str], who: str = "", cases: list[Thread] = CASES,
        **more: Any) -> None:  # fmt: skip
    """build's file as the baseline, and the IR that OpenVINO makes of it, whose text is changed, as the target. cases:
    of which batch."""

    def make(folder: Path) -> Made:
        import openvino as ov

        g = Typed(seed=2121, opset=17)
        base = g.save(folder / "base.onnx", build(g))
        path = folder / f"{name}.xml"
        ov.save_model(ov.Core().read_model(str(base)), str(path), compress_to_fp16=False)
        text = path.read_text()
        path.write_text(change(text))
        assert not who or change(text) != text
        return path, base, g.feeds

    def named() -> None: ...

    named.__name__, named.__doc__ = name, truth
    cases.append(labelled(named, "", "converter" if who else "healthy", "ov_opt", who, OTHER if who else "", make=make,
                          baseline="ort_fp32", extra=who, **more))  # fmt: skip


def _gated(g: Graph) -> Sequence[str]:
    x = g.op("Elu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "a", 2)], "act", alpha=1.5)
    x = g.op("Mul", [x, g.op("HardSigmoid", [x], "gate", alpha=0.2, beta=0.5)], "gated")
    return [g.conv(x, 8, 4, "y")]


_ir("slope_of_an_elu_in_the_ir", "Elu's alpha is 0.5 in the IR in place of 1.5.", _gated,
    lambda text: text.replace('alpha="1.5"', 'alpha="0.5"'), "act", facts=["alpha"])  # fmt: skip
_ir("gate_as_it_was_saved", "The IR as it was saved, in FP32.", _gated, lambda text: text)


@case("healthy", "ov_int8")
def response_norm_by_nncf(g: Graph) -> Sequence[str]:
    """Two convolutions with a gate between them, a pool, a classifier, by NNCF."""
    x = g.op("Relu", [g.conv(_fed(g, 8, 3, 12, 12), 3, 12, "a")], "r")
    x = g.op("Mul", [x, g.op("Sigmoid", [g.conv(x, 12, 12, "b")], "gate")], "gated")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 12, 6, "y", 3)]


@case("formula", "ov_bf16", "y score score_mm", "coarse cancellation cancels amplified stepped found_by_repair drift",
      offered=None, extra="y score score_mm raw level")  # fmt: skip
def margin_between_two_distant_scores(g: Graph) -> Sequence[str]:
    """Two scores about 500, of which the difference of about 1 is the answer: bfloat16 steps by 2 there."""
    x = g.op("MatMul", [_fed(g, 16, 16), k(g, "w", g.random.normal(size=(16, 32)) / 4)], "raw")
    x = g.op("Add", [x, k(g, "level", g.random.uniform(480, 520, 1) * np.ones(32))], "score")
    x = g.op("MatMul", [x, k(g, "differ", np.kron(np.eye(16), [[1], [-1]]))], "y")
    return [x]


@case("healthy", "ov_bf16")
def words_and_a_picture_in_bfloat16(g: Graph) -> Sequence[str]:
    """Cross attention of five words over sixteen places in OpenVINO's bfloat16."""
    return words_that_look_at_a_picture(g)


# --- LiteRT


def filters_turned_in_their_plane() -> None:
    """The third layer's filters have height and width exchanged."""


def bias_of_the_next_filter_in_8_bits() -> None:
    """In 8 bits: the first layer's biases are moved on by one filter."""


def filters_in_another_order() -> None:
    """The first layer's filters and biases in another order, and the second's inputs with them: nothing is wrong."""


def filters_in_another_order_in_8_bits() -> None:
    """In 8 bits: the third layer's filters, their scales and biases, and the head's inputs: nothing is wrong."""


_ORDER8, _ORDER16 = np.array([3, 0, 7, 1, 6, 2, 5, 4]), np.random.default_rng(21).permutation(16)


def _lite(source: str, *changes: tuple[str, Callable[[Array], Array]], scales: Array | None = None) -> Any:
    """Constants of a file, each by its name; scales: the order of the third layer's."""

    def change(run: Any, blob: bytes) -> bytes:
        for name, edit in changes:
            w = run.get_tensor(_detail(run, name)["index"]).copy()
            blob = _put(blob, w, edit(w))
        for name in ("conv3_conv_filter", "conv3_conv_bias") if scales is not None else ():
            told = _detail(run, name)["quantization_parameters"]["scales"].astype(np.float32)
            blob = _put(blob, told, told[scales])
        return blob

    return _bytes(source, change)


_FIRST = (("conv1_conv_filter", lambda w: w[_ORDER8]), ("conv1_conv_bias", lambda w: w[_ORDER8]),
          ("conv2_conv_filter", lambda w: w[..., _ORDER8]))  # fmt: skip
_THIRD = (("conv3_conv_filter", lambda w: w[_ORDER16]), ("conv3_conv_bias", lambda w: w[_ORDER16]),
          ("fc_fc_weights", lambda w: w[:, _ORDER16]))  # fmt: skip

CASES += [
    labelled(filters_turned_in_their_plane, "", "converter", "tflite_fp32", "relu3_out", DIFFER, extra="relu3_out",
             make=_lite("digits_float32", ("conv3_conv_filter", lambda w: w.swapaxes(1, 2))), baseline="tflite_fp32",
             facts=["conv3_conv_filter"]),
    labelled(bias_of_the_next_filter_in_8_bits, "", "converter", "tflite_ref", "conv2_input_nhwc", DIFFER,
             make=_lite("digits_int8", ("conv1_conv_bias", lambda w: np.roll(w, 1))), baseline="tflite_ref",
             extra="conv2_input_nhwc", facts=["conv1_conv_bias"]),
    labelled(filters_in_another_order, "", "healthy", "tflite_opt", "", "", make=_lite("digits_float32", *_FIRST),
             baseline="tflite_fp32"),
    labelled(filters_in_another_order_in_8_bits, "", "healthy", "tflite_ref", "", "",
             make=_lite("digits_int8", *_THIRD, scales=_ORDER16), baseline="tflite_ref"),
]  # fmt: skip

# --- folders that a board wrote


def _board(name: str, truth: str, wrong: str, who: str = "", kind: Any = np.float32) -> None:
    """The model beside a folder of its tensors, channels last, as another engine computes them."""
    options: list[str] = []

    def build(g: Graph, how: str) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 10, 10), 3, 8, "a")], "ra")
        y = g.conv(x, 8, 8, "b", 0.5)
        if how == "pads":
            g.nodes[-1].CopyFrom(helper.make_node("Conv", [x, "b.w"], ["b"], name="node_b", pads=[0, 0, 2, 2]))
        x = g.op("Add", ["a" if how == "skip" else x, y], "sum")
        x = g.op("AveragePool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
        return [g.conv(g.op("Relu", [x], "rb"), 8, 4, "y")]

    def make(folder: Path) -> Made:
        from planted.fourteenth_truth import _each

        made = []
        for file, how in ((f"{name}.onnx", ""), ("board.onnx", wrong)):
            g = Typed(seed=2122)
            made.append(g.save(folder / file, build(g, how)))
        dump = folder / "board"
        dump.mkdir(exist_ok=True)
        for n, (tensor, value) in enumerate({**_each(made[1], g.feeds), **g.feeds}.items()):
            np.save(dump / f"{n:02d}_{tensor}.npy", value.transpose(0, 2, 3, 1).astype(kind))
        options[:] = ["--baseline", str(dump)]
        return made[0], None, g.feeds

    def named() -> None: ...

    named.__name__, named.__doc__ = name, truth
    CASES.append(labelled(named, "", "dump", "ort_fp32", who, f"{OTHER} kernels_disagree" if who else "", make=make,
                          options=options, extra=who, fix=False))  # fmt: skip


_board("board_that_pads_at_the_end", "The board pads a filter of three by 0 and 2 in place of 1 and 1.", "pads", "b")
_board("board_that_skips_around_the_relu", "The board adds what comes before the Relu in place of behind it.", "skip",
       "sum")  # fmt: skip
_board("board_in_half", "The board's tensors in float16, channels last: their rounding alone.", "", kind=np.float16)
