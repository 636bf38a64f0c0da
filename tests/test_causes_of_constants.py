"""What a file holds instead of a constant is named: cut off, shifted, transposed, rounded; sums that stand still."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved

pytest.importorskip("onnx", reason="the models are ONNX's")
pytest.importorskip("onnxruntime", reason="they run in ONNX Runtime")

from planted import eighth_onnx, fourth_onnx
from planted.onnx_faults import Array, Graph, image, tokens
from planted.onnx_further import k

import precision_debug
from precision_debug.explain.files import _compare_operators
from precision_debug.numbers.narrowing import narrow_type, round_values
from precision_debug.records import Culprit, Operator
from precision_debug.report.blame import blame
from precision_debug.report.lead import lead_sentences


def weights_of(g: Graph, name: str, value: Array, *, clip: float = 1.0, off: int = 0) -> str:
    """A weight in int8, behind a DequantizeLinear. clip: of its range. off: by which it is read with another zero."""
    scale = np.float32(np.abs(value).max() / 127 * clip)
    g.weight(f"{name}.q", np.clip(np.round(value / scale), -127, 127).astype(np.int8))
    return g.op("DequantizeLinear", [f"{name}.q", k(g, f"{name}.s", scale), g.weight(f"{name}.z", np.int8(off))], name)


def held(g: Graph, x: str, out: str, *, scale: float = 10 / 127, zero: int = 128, read: int | None = None,
         read_scale: float | None = None) -> str:  # fmt: skip
    """A tensor in uint8. read, read_scale: a zero point and a scale with which it is read, and not written."""
    s, z = k(g, f"{out}.s", scale), g.weight(f"{out}.z", np.uint8(zero))
    other = z if read is None else g.weight(f"{out}.z2", np.uint8(read))
    g.op("QuantizeLinear", [x, s, z], f"{out}_q")
    step = s if read_scale is None else k(g, f"{out}.s2", read_scale)
    return g.op("DequantizeLinear", [f"{out}_q", step, other], out)


def net(
    g: Graph, *, whole: bool = True, weight: dict[str, Any] | None = None, tensor: dict[str, Any] | None = None,
    bias: float = 1.0,
) -> list[str]:  # fmt: skip
    """Four convolutions, in INT8 or the float model that it was made of; what is wrong is wrong in the third."""
    r = np.random.default_rng(5)

    def seen(x: str, out: str, **how: Any) -> str:
        return held(g, x, out, **how) if whole else g.op("Identity", [x], out)

    x, inside, step = seen(image(g), "d", scale=4 / 127), 3, 4 / 127
    for n in range(4):
        w = (r.normal(size=(8, inside, 3, 3)) / np.sqrt(9 * inside) * 1.4).astype(np.float32)
        b = (r.normal(size=8) * 0.1).astype(np.float32)
        wrong = n == 2
        kernel = weights_of(g, f"c{n}.w", w, **((weight or {}) if wrong else {})) if whole else g.weight(f"c{n}.w", w)
        if whole:
            unit = np.float32(step) * g.weights[f"c{n}.w.s"]
            steps = np.clip(np.round(b / unit) * (bias if wrong else 1.0), -(2**31), 2**31 - 1)
            g.weight(f"c{n}.b.q", steps.astype(np.int64).astype(np.int32))
            shift = g.op("DequantizeLinear", [f"c{n}.b.q", g.weight(f"c{n}.b.s", unit)], f"c{n}.b")
        else:
            shift = g.weight(f"c{n}.b", b)
        x = g.op("Relu", [g.op("Conv", [x, kernel, shift], f"c{n}", pads=[1, 1, 1, 1])], f"r{n}")
        x, inside, step = seen(x, f"d{n}", **((tensor or {}) if wrong else {})), 8, 10 / 127
    return [g.op("Conv", [x, g.weight("last", r.normal(size=(4, 8, 1, 1)).astype(np.float32))], "y")]


def against_float(folder: Path, mode: str, **faults: Any) -> tuple[Culprit, str]:
    plain, made = Graph(seed=9), Graph(seed=9)
    base = plain.save(folder / "base.onnx", net(plain, whole=False))
    model = made.save(folder / "m.onnx", net(made, **faults))
    return first_of(model, base, mode, plain.feeds)


def first_of(model: Path, base: Path, mode: str, feeds: Any) -> tuple[Culprit, str]:
    report = precision_debug.compare(model, run_mode=mode, baseline="ort_fp32", baseline_model=base, inputs=feeds)
    assert report.explanation is not None
    assert report.explanation.culprits
    return report.explanation.culprits[0], lead_sentences(report)[0].en


@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt"])
@pytest.mark.parametrize(
    ("faults", "who", "code", "said"),
    [
        ({"weight": {"clip": 0.3}}, {"c2", "r2"}, "weight_clipped", "c2.w reaches 0.4894 and is clipped at 0.1468"),
        ({"weight": {"off": 20}}, {"c2", "r2"}, "zero_point", "all values of its constant c2.w are off by the same"),
        ({"bias": 1e12}, {"c2", "r2"}, "bias_clipped", "int32 bias c2.b stands at the type's maximum"),
        ({"bias": 6}, {"c2", "r2"}, "files_differ", "constant c2.b is -0.1885 at [0] in the baseline's and -1.131"),
        ({"tensor": {"read": 148}}, {"d2"}, "zero_point", "all its results are off by the same -1.575, -20 steps"),
        ({"tensor": {"read": 118}}, {"d2"}, "zero_point", "all its results are off by the same 0.7874, 10 steps"),
        ({"tensor": {"read_scale": 12.5 / 127}}, {"d2"}, "scale", "all its results are 1.25 x what they should be"),
        ({"tensor": {"read_scale": 7 / 127}}, {"d2"}, "scale", "all its results are 0.6998 x what they should be"),
        ({"tensor": {"zero": 255}}, {"d2"}, "saturation", "of its results are clipped at 0, though they reach"),
        ({"tensor": {"scale": 200 / 127}}, {"d2"}, "coarse_scale", "up to 7.063, take 4 steps of 255"),
    ],
)
def test_what_is_wrong_in_a_quantised_file_is_said(
    faults: dict[str, Any], who: set[str], code: str, said: str, mode: str, tmp_path: Path
) -> None:
    culprit, sentence = against_float(tmp_path, mode, **faults)
    assert culprit.name in who
    assert (culprit.cause, said in sentence) == (code, True), sentence
    assert "computes in FP32 too" not in sentence


@pytest.mark.parametrize(("size", "code"), [(64, "saturation"), (1024, "coarse")])
def test_a_range_is_blamed_where_a_wider_one_of_as_many_steps_helps(tmp_path: Path, size: int, code: str) -> None:
    """Two numbers of many are cut off: a range that holds them loses more of the others than it gives back."""
    files = []
    for quantised in (False, True):
        g = Graph(seed=3)
        values = g.random.normal(size=(size, 256)).astype(np.float32)
        values[3, 5], values[7, 9] = 300, -300
        h = g.op("Mul", [g.input("x", values), g.weight("w", np.ones((1, 256), np.float32))], "h")
        if quantised:
            ends = [g.weight("s", np.float32(5 / 127)), g.weight("z", np.array(0, np.int8))]
            h = g.op("DequantizeLinear", [g.op("QuantizeLinear", [h, *ends], "h_q"), *ends], "h_d")
        files.append(g.save(tmp_path / f"{quantised}.onnx", [g.op("Relu", [h], "y")]))
    report = precision_debug.compare(
        files[1], baseline_model=files[0], run_mode="ort_fp32", baseline="ort_fp32", inputs=g.feeds
    )  # fmt: skip
    assert report.explanation is not None
    assert report.explanation.culprits[0].cause == code


def test_two_runs_of_a_file_that_is_wrong_begin_with_that(tmp_path: Path) -> None:
    g = Graph(seed=9)
    report = precision_debug.compare(
        g.save(tmp_path / "m.onnx", net(g, bias=1e12)), run_mode="ort_opt", inputs=g.feeds
    )  # fmt: skip
    first, second = (one.en for one in lead_sentences(report)[:2])
    assert holds_approved(first)
    assert second.startswith("All ")


def test_a_constant_that_a_cast_rounded_is_named(tmp_path: Path) -> None:
    g = Graph(seed=4)
    x, at = tokens(g, 32, 256), g.input("at", np.arange(256, dtype=np.float32)[:, None])
    inverse = (1 / 10000 ** (np.arange(0, 32, 2) / 32)).astype(np.float32)
    angle = g.op("Mul", [at, g.weight("rope.inv_freq", inverse[None])], "angle")
    turned = g.op("Concat", [g.op("Cos", [angle], "cos"), g.op("Sin", [angle], "sin")], "both", axis=1)
    out = g.dense(g.norm(g.op("Mul", [x, turned], "turned"), 32, "n"), 32, 8, "y")
    report = precision_debug.compare(g.save(tmp_path / "m.onnx", [out]), run_mode="ort_fp16_sim", inputs=g.feeds)
    assert report.explanation is not None
    assert report.explanation.culprits[0].evidence["weight"] == "rope.inv_freq"
    assert holds_approved(lead_sentences(report)[0].en)


def test_a_transposed_weight_is_called_so(tmp_path: Path) -> None:
    graphs = Graph(seed=1), Graph(seed=1)
    for g in graphs:
        g.dense(g.norm(g.attention(tokens(g), 32, "a"), 32, "n"), 32, 8, "y")
    graphs[1].weights["a_v.w"] = graphs[1].weights["a_v.w"].T.copy()
    base, model = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    culprit, sentence = first_of(model, base, "ort_fp32", graphs[0].feeds)
    assert culprit.name == "a_v_mm"
    assert holds_approved(sentence)


def test_what_one_file_alone_puts_before_an_operator_is_told(tmp_path: Path) -> None:
    """Ids beyond int32 behind a cast of one file: the operator behind it did nothing to the same inputs."""
    table = np.random.default_rng(3).normal(size=(50, 16)).astype(np.float32)
    graphs = Graph(), Graph()
    for g, kind in zip(graphs, (7, 6), strict=True):
        ids = g.input("ids", np.array([[3, 5, 2**31 + 7, 9], [1, 2, 3, 2**33 + 5]], np.int64))
        wide = g.op("Cast", [g.op("Cast", [ids], "small", to=kind)], "wide", to=7)
        slot = g.op("Mod", [wide, g.weight("n", np.int64(50))], "slot")
        g.op("Mul", [g.op("Gather", [g.weight("table", table), slot], "emb"), k(g, "h", 0.5)], "y")
    base, model = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    culprit, sentence = first_of(model, base, "ort_fp32", graphs[0].feeds)
    assert culprit.cause == "files_differ"
    assert "Cast small (int32)" in sentence


@pytest.mark.parametrize("stated", ["target", "baseline"])
def test_a_default_that_one_file_states_is_no_difference(stated: str, tmp_path: Path) -> None:
    """Exporters write what ONNX takes anyway; the weight is what differs."""
    graphs = Graph(seed=2), Graph(seed=2)
    for n, g in enumerate(graphs):
        said = {"strides": [1, 1], "dilations": [1, 1], "group": 1, "auto_pad": "NOTSET", "kernel_shape": [3, 3]}
        x = g.op("Conv", [image(g), g.weight("c.w", g.random.normal(size=(4, 3, 3, 3)))], "c",
                 **(said if n == (stated == "target") else {}))  # fmt: skip
        pool = {"pads": [0, 0, 0, 0], "ceil_mode": 0} if n == (stated == "target") else {}
        g.op("MaxPool", [g.op("Elu", [x], "e", **({"alpha": 1.0} if pool else {}))], "y", kernel_shape=[2, 2], **pool)
    graphs[1].weights["c.w"][1, 1, 1, 1] += 1
    base, model = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    culprit, sentence = first_of(model, base, "ort_fp32", graphs[0].feeds)
    assert (culprit.name, culprit.evidence["name"]) == ("c", "c.w"), sentence


@pytest.mark.parametrize(
    ("op_type", "ways"), [("LogSoftmax", (2, -1)), ("Softmax", (-1, 2)), ("LpNormalization", (1, -2))]
)
def test_an_axis_counted_from_the_other_end_is_no_difference(op_type: str, ways: tuple[int, int]) -> None:
    mine, theirs = (Operator(op_type=op_type, attributes={"axis": axis}) for axis in ways)
    assert _compare_operators(mine, theirs, "y", (3, 3)) == {}
    assert _compare_operators(mine, theirs, "y", (4, 4))["name"] == "axis"
    assert _compare_operators(mine, theirs, "y")["name"] == "axis"  # of which it is not known how many there are


def test_an_axis_that_had_others_behind_it_before_opset_13_is_told(tmp_path: Path) -> None:
    """One attribute, two meanings: exporters that change the opset alone make another model."""
    for shares, apart in (("Softmax", True), ("LogSoftmax", True), ("Softmax", False)):
        graphs = Graph(seed=2, opset=17), Graph(seed=2, opset=11)
        for n, g in enumerate(graphs):
            p = g.op(shares, [g.dense(tokens(g), 32, 16, "a")], "p", axis=1 if apart else 2)
            g.op("Mul", [p, k(g, "f", 2.0 if apart or not n else 2.5)], "y")
        base, model = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
        culprit, sentence = first_of(model, base, "ort_fp32", graphs[0].feeds)
        assert (culprit.name, culprit.cause) == ("p" if apart else "y", "files_differ"), sentence
        assert ("axis is 1 in the baseline's and 1 with all axes behind it in the target's" in sentence) == apart


def test_a_scan_s_direction_is_told_of_what_its_body_makes(tmp_path: Path) -> None:
    """The body is the same, and so are its operators: their iterations read other rows."""
    graphs = Graph(seed=2), Graph(seed=2)
    for n, g in enumerate(graphs):
        steps = g.op("Transpose", [tokens(g, 16)], "steps", perm=[1, 0, 2])
        ends = [[onnx.helper.make_tensor_value_info(one, 1, [2, 16]) for one in names]
                for names in (("s", "b"), ("s_out", "seen"))]  # fmt: skip
        body = onnx.helper.make_graph(
            [onnx.helper.make_node("Mul", ["s", "half"], ["kept"], name="m"),
             onnx.helper.make_node("Add", ["kept", "b"], ["s_out"], name="a"),
             onnx.helper.make_node("Identity", ["s_out"], ["seen"], name="i")], "body", *ends,
        )  # fmt: skip
        k(g, "half", 0.7)
        way = {"scan_input_directions": [1]} if n else {}
        g.nodes.append(onnx.helper.make_node("Scan", [k(g, "s0", np.zeros((2, 16))), steps], ["last", "all"],
                                             name="scan", body=body, num_scan_inputs=1, **way))  # fmt: skip
        g.dense("last", 16, 4, "y")
    base, model = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    culprit, sentence = first_of(model, base, "ort_fp32", graphs[0].feeds)
    assert culprit.cause == "files_differ", sentence
    assert (culprit.evidence["owner_type"], culprit.evidence["owner"]) == ("Scan", "last")
    said = "attribute scan_input_directions is missing in the baseline's and [1] in the target's"
    assert said in sentence
    assert sentence.startswith("Scan `last` ")  # the body's operators are the same in both


def test_an_attribute_that_one_file_leaves_out_is_told_by_its_default(tmp_path: Path) -> None:
    graphs = Graph(seed=2), Graph(seed=2)
    for n, g in enumerate(graphs):
        more = {"dilations": [2, 2]} if n else {}
        g.op("Conv", [image(g), g.weight("c.w", g.random.normal(size=(4, 3, 3, 3)))], "y", pads=[1 + n] * 4, **more)
    base, model = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    _, sentence = first_of(model, base, "ort_fp32", graphs[0].feeds)
    assert holds_approved(sentence)


def test_numbers_that_differ_are_counted_to_the_last_and_those_beyond_rounding_beside(tmp_path: Path) -> None:
    """Six numbers of a weight are others, one of them in its last digits alone."""
    graphs = Graph(seed=1), Graph(seed=1)
    for g in graphs:
        g.dense(tokens(g), 32, 8, "y")
    w = graphs[1].weights["y.w"]
    w[2:7, 5] += 0.1
    w[8, 5] *= 1 + 2e-7
    base, model = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    culprit, _ = first_of(model, base, "ort_fp32", graphs[0].feeds)
    assert culprit.evidence["elements"] == w.size
    assert (culprit.evidence["count"], culprit.evidence["beyond"]) == (6, 5)


def test_what_an_engine_puts_before_a_fused_product_is_not_told_of_its_file(tmp_path: Path) -> None:
    """ONNX Runtime makes a Gemm of a product and its bias, and reshapes before it; the weight is what differs."""
    graphs = Graph(seed=1), Graph(seed=1)
    for g in graphs:
        g.dense(g.op("Gelu", [g.dense(tokens(g), 32, 32, "up")], "act", domain="com.microsoft"), 32, 8, "y")
    graphs[1].weights["up.w"][3, 5] += 0.1
    base, model = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    culprit, sentence = first_of(model, base, "ort_opt", graphs[0].feeds)
    assert culprit.evidence["name"].startswith("up.w"), sentence


def test_a_channel_that_takes_the_range_of_several_tensors_is_named_once(tmp_path: Path) -> None:
    """Neither of the two makes half of the error by itself; it is one channel, and so one culprit."""
    g = Graph(seed=4)
    x = tokens(g)
    g.feeds["x"][..., 7] *= 60
    out = g.dense(g.norm(g.mlp(x, 32, "m"), 32, "n"), 32, 8, "y")
    report = precision_debug.compare(g.save(tmp_path / "m.onnx", [out]), run_mode="ort_int8", inputs=g.feeds)
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert only.cause == "outlier_channel"
    assert {only.name, only.evidence["too"].strip("`")} == {"x", "m"}
    assert {"x", "m"} <= {*only.keep}
    assert only.share is not None
    assert only.share > report.explanation.budget[only.name]


def test_a_channel_is_told_of_the_tensors_that_have_it(tmp_path: Path) -> None:
    """`even` reads what has the outlier and makes all channels alike: "the same one does so in `even`" was not true."""
    case = next(one for one in eighth_onnx.CASES if one.name == "rows_of_their_own_behind_a_slope")
    model, _, feeds = case.make(tmp_path)
    report = precision_debug.compare(model, run_mode="ort_int8", inputs=feeds)
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause) == ("c2", "outlier_channel")
    assert "even" not in first.evidence.get("too", "")


def test_a_cast_that_wraps_around_is_blamed_and_not_what_reads_it(tmp_path: Path) -> None:
    """Its reader is given what the narrower integers hold, on both sides."""
    graphs = Graph(seed=9), Graph(seed=9)
    for g, kind in zip(graphs, (6, 2), strict=True):
        size = g.op("Abs", [g.mlp(tokens(g, scale=200.0), 32, "m")], "size")
        real = g.op("Cast", [g.op("Cast", [size], "small", to=kind)], "real", to=1)
        g.dense(g.op("Mul", [real, k(g, "hundredth", 0.01)], "h"), 32, 8, "y")
    base, model = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    report = precision_debug.compare(
        model, run_mode="ort_fp32", baseline_model=base, baseline="ort_fp32", inputs=graphs[0].feeds
    )
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.name, only.cause) == ("small", "files_differ")


def test_an_outlier_channel_in_a_residual_stream_is_told_where_it_comes_from(tmp_path: Path) -> None:
    """The norm that makes it, and not the sums behind it, through which it goes on; kept together they are a fix."""
    case = next(one for one in fourth_onnx.CASES if one.name == "outlier_channel_in_one_layer_of_three")
    model, _, feeds = case.make(tmp_path)
    report = precision_debug.compare(model, run_mode="ort_int8", inputs=feeds)
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.name, only.cause, only.evidence["too"]) == ("l1_n2", "outlier_channel", "`l1_m`")
    assert {"l1_n2", "l1_m", "l1", "l2"} <= {*only.left_out}
    assert only.without is not None
    assert only.with_all is not None
    assert only.without < only.with_all / 2
    first = next(part.text for line in blame(report).lines for part in line if "`l1_m`, `l1`, `l2`" in part.text.en)
    assert "`l1_m`、`l1`、`l2`" in first.zh
    assert holds_approved(first.en)
    assert report.to_keep is not None
    assert report.to_keep.option


TORCH = """
import torch
from torch import nn


class Sums(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.inside, self.out, self.layers = nn.Linear(16, 16), nn.Linear(16, 4), layers

    def forward(self, x):
        if self.layers:
            for _ in range(16):
                x = x + 0.1 * torch.tanh(self.inside(x))
            return self.out(x)
        x = torch.sigmoid(self.inside(x))
        c = torch.ones_like(x)
        for _ in range(24):
            c = c + 0.003 * x
        return self.out(c)


class Square(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x**2).mean(-1, keepdim=True) + 1e-6)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.norm, self.out = nn.Linear(32, 32), Square(), nn.Linear(32, 4)

    def forward(self, x):
        return self.out(self.norm(400 * self.inside(x)))


class Discount(nn.Module):
    def __init__(self, base, rows):
        super().__init__()
        self.a = nn.Linear(16, 1)
        self.register_buffer("base", torch.full((1, rows), base))
        self.register_buffer("at", torch.arange(float(rows)))

    def forward(self, x):
        return self.a(x).squeeze(-1) * self.base ** self.at


def discount():
    torch.manual_seed(0)
    return Discount(0.99, 256), (torch.randn(8, 256, 16),)


def interest():
    torch.manual_seed(0)
    return Discount(1.0137, 200), (torch.randn(4, 200, 16),)


def stopped():
    torch.manual_seed(5)
    return Stopped(), (torch.randn(2, 8, 32),)


def still():
    torch.manual_seed(0)
    return Sums(False), (torch.rand(4, 16),)


def moving():
    torch.manual_seed(0)
    return Sums(True), (torch.randn(4, 16),)


def square():
    torch.manual_seed(0)
    return Norm(), (2 * torch.randn(8, 32),)


class Stopped(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.o = nn.Linear(32, 32), nn.Linear(32, 4)
        self.start = nn.Parameter(torch.full((32,), 2.0))

    def forward(self, x):
        y, s = self.a(x), self.start.expand(2, 32)
        for n in range(40):
            s = s + 0.004 * y[:, n % 8]
        return self.o(4 * (s - self.start))


class Heads(nn.Module):
    def __init__(self, tiled):
        super().__init__()
        self.q, self.kv, self.out, self.tiled = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 8), tiled

    def forward(self, x):
        q, k = (part(x).reshape(2, 6, -1, 8).transpose(1, 2) for part in (self.q, self.kv))
        k = k.repeat(1, 2, 1, 1) if self.tiled else k.repeat_interleave(2, 1)
        score = (q @ k.transpose(-1, -2) * 0.4).softmax(-1)
        return self.out((score @ k).transpose(1, 2).reshape(2, 6, 32))


def tiled():
    torch.manual_seed(0)
    return Heads(True), (torch.randn(2, 6, 32),)


def repeated():
    torch.manual_seed(0)
    return Heads(False), (torch.randn(2, 6, 32),)
"""


def in_torch(folder: Path, factory: str, mode: str, **more: Any) -> Any:
    pytest.importorskip("torch", reason="it is a PyTorch model")
    (folder / "m.py").write_text(TORCH)
    report = precision_debug.compare(f"{folder}/m.py:{factory}", run_mode=mode, **more)
    assert report.explanation is not None
    return report


def test_a_sum_in_a_loop_of_python_that_stands_still_is_a_drift(tmp_path: Path) -> None:
    culprit = in_torch(tmp_path, "still", "torch_bf16").explanation.culprits[0]
    assert (culprit.cause, culprit.name.partition("#")[0], culprit.evidence["depth"]) == ("drift", "add", 24)
    assert in_torch(tmp_path, "moving", "torch_bf16").explanation.culprits == ()


def test_updates_below_half_of_the_spacing_are_named_where_they_go_to_either_side(tmp_path: Path) -> None:
    """It was the subtraction behind them, which amplifies "the ordinary rounding of what it reads"."""
    culprit = in_torch(tmp_path, "stopped", "torch_bf16").explanation.culprits[0]
    assert (culprit.cause, culprit.name.partition("#")[0], culprit.evidence["depth"]) == ("drift", "add", 40)
    assert (culprit.evidence["lost"], culprit.evidence["type"]) == (pytest.approx(0.93, abs=0.05), "bfloat16")
    assert culprit.repaired is None  # one of forty alone


@pytest.mark.parametrize(("factory", "base"), [("discount", 0.99), ("interest", 1.0137)])
def test_an_operator_of_two_constants_alone_is_computed_again(factory: str, base: float, tmp_path: Path) -> None:
    """A power of a constant that bfloat16 has not, by steps that it has: it was "this type is too coarse"."""
    culprit = in_torch(tmp_path, factory, "torch_bf16").explanation.culprits[0]
    assert (culprit.cause, culprit.evidence.get("weight")) == ("constant_rounded", "base")
    held = round_values(np.float32([base]), narrow_type("bfloat16"))[0]
    assert culprit.evidence["off"] == pytest.approx(abs(held - base) / base, rel=1e-3)
    assert culprit.evidence["left"] < 0.5


def test_views_of_one_name_in_two_programs_are_not_held_against_each_other(tmp_path: Path) -> None:
    """What one program alone does moves the numbers of all that comes after it: its fifth view is another one."""
    base = f"{tmp_path}/m.py:repeated"
    report = in_torch(tmp_path, "tiled", "torch_fp32", baseline="torch_fp32", baseline_model=base)
    assert report.explanation.culprits
    assert "attribute size" not in lead_sentences(report)[0].en


def test_squares_inside_a_module_that_pass_the_type_are_named(tmp_path: Path) -> None:
    """What the module is given is not seen: it is scaled between two modules."""
    report = in_torch(tmp_path, "square", "torch_fp16", level="module")
    assert (report.explanation.culprits[0].name, report.explanation.culprits[0].cause) == ("norm", "range_inside")
    assert holds_approved(lead_sentences(report)[0].en)


def in_blocks(
    folder: Path, bits: int, *, zeros: bool, times: float = 1.0, again: bool = False
) -> precision_debug.report.Report:
    """A product with weights of few bits against the float model that they were made of. times: what one block's scale
    is multiplied with. again: those of its column were quantised with such scales, and not only read with them."""
    random = np.random.default_rng(9)
    wide, many, block, top = 64, 16, 16, (1 << bits) - 1
    w = random.normal(size=(many, wide // block, block)).astype(np.float32) / 8
    low, high = w.min(-1, keepdims=True), w.max(-1, keepdims=True)
    fits = (high - low) / top if zeros else 2 * np.abs(w).max(-1, keepdims=True) / (top - 1)
    zero = np.clip(np.rint(-low / fits), 0, top) if zeros else np.full_like(fits, 1 << (bits - 1))
    read = fits.copy()
    read[5, slice(None) if again else 1] *= times
    held = np.clip(np.rint(w / (read if again else fits)) + zero, 0, top).astype(np.uint8)

    def packed(each: Array) -> Array:
        parts = each.reshape(*each.shape[:-1], -1, 8 // bits).astype(np.uint8)
        return np.asarray((parts << np.arange(0, 8, bits, dtype=np.uint8)).sum(-1).astype(np.uint8))

    def graph(quantised: bool) -> Graph:
        g = Graph(seed=3)
        x = tokens(g, wide)
        if not quantised:
            g.op("MatMul", [x, k(g, "w", w.reshape(many, wide).T)], "h")
        else:
            g.weight("w4", packed(held).reshape(many, wide // block, -1))
            offsets = [g.weight("z4", packed(zero.reshape(many, -1)).ravel())] if zeros else []
            g.op("MatMulNBits", [x, "w4", k(g, "s4", read.ravel()), *offsets], "h", domain="com.microsoft", K=wide,
                 N=many, bits=bits, block_size=block)  # fmt: skip
        return g

    paths = []
    for quantised in (False, True):
        g = graph(quantised)
        paths.append(g.save(folder / f"{quantised}.onnx", ["h"]))
    model = onnx.load(paths[1])
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [2, 8, many]))
    onnx.save(model, paths[1])
    return precision_debug.compare(
        paths[1], baseline_model=paths[0], run_mode="ort_fp32", baseline="ort_fp32", inputs=g.feeds
    )


@pytest.mark.parametrize(("bits", "zeros"), [(4, False), (4, True), (8, False)])
def test_one_blocks_scale_of_a_weight_of_few_bits_is_told(tmp_path: Path, bits: int, zeros: bool) -> None:
    explained = in_blocks(tmp_path, bits, zeros=zeros, times=4).explanation
    assert explained is not None
    first = explained.culprits[0]
    assert (first.name, first.cause, first.evidence["weight"]) == ("h", "scale", "w")
    assert first.evidence["ratio"] == pytest.approx(4, rel=0.03)
    assert (first.evidence["count"], first.evidence["first"], first.evidence["last"]) == (16, [16, 5], [31, 5])
    assert first.evidence["left"] < 0.5


@pytest.mark.parametrize(("bits", "zeros"), [(4, False), (8, False)])
def test_a_block_on_far_too_large_steps_is_told(tmp_path: Path, bits: int, zeros: bool) -> None:
    explained = in_blocks(tmp_path, bits, zeros=zeros, times=12 if bits == 4 else 100, again=True).explanation
    assert explained is not None
    first = explained.culprits[0]
    assert (first.name, first.cause, first.evidence["from"]) == ("h", "coarse_scale", "w")
    assert first.evidence["scale"] > 4 * first.evidence["fits"]


def test_weights_of_few_bits_with_scales_that_fit_have_no_wrong_one(tmp_path: Path) -> None:
    explained = in_blocks(tmp_path, 4, zeros=True).explanation
    assert explained is not None
    assert explained.culprits == ()


@pytest.mark.skipif(not find_spec("onnx_ir"), reason="ONNX Runtime's own quantiser of 4 bits needs onnx_ir")
@pytest.mark.parametrize("level", ["0", "4"])
def test_healthy_weights_of_4_bits_lose_what_4_bits_lose_in_every_arithmetic(tmp_path: Path, level: str) -> None:
    """Predicted is what it comes to, whether products are of floats or of int8, and three layers are nobody's fault."""
    g = Graph(seed=3)
    h = tokens(g, 64)
    for layer in range(3):
        h = g.op("Tanh", [g.dense(h, 64, 64, f"l{layer}")], f"t{layer}")
    path = g.save(tmp_path / "m.onnx", [h])
    told = precision_debug.compare(path, run_mode="ort_int4", inputs=g.feeds, accuracy_level=level).explanation
    assert told is not None
    assert told.culprits == ()
    assert told.expected is not None
    assert told.actual is not None
    assert 0.5 < float(told.actual) / float(told.expected) < 2


def test_what_only_reads_the_channel_that_takes_the_range_has_none_of_its_own(tmp_path: Path) -> None:
    """The fifth of its own eight channels is as large as the others; it is the fifth of what it reads that is not."""
    g = Graph(seed=1)
    g.input("x", g.random.normal(size=(1, 3, 12, 12)).astype(np.float32))
    y = g.op("Relu", [g.conv("x", 3, 16, "a")], "r")
    g.weights["a.w"][5] *= 300
    g.conv(y, 16, 8, "h")
    g.weights["h.w"][:, 5] /= 300
    model = g.save(tmp_path / "m.onnx", [g.op("Relu", ["h"], "y")])
    report = precision_debug.compare(model, run_mode="ort_int8", inputs=g.feeds)
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.name, only.cause, only.evidence.get("channel")) == ("r", "outlier_channel", 5)
    assert "too" not in only.evidence
