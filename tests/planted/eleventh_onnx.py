"""An eleventh batch: where it hurts. Slices of one output, a metric with a bound, integers, inputs that did not
calibrate, the type that really ran, work cut differently, decisions; in ONNX Runtime and OpenVINO. Written and
labelled before any of it was compared; how many decisions bfloat16 turns was counted in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from planted.onnx_faults import Array, Graph, _body, _info, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen

Build = Callable[[Graph], Sequence[str]]
DIFFER = "files_differ other_arithmetic"


@dataclass(frozen=True, kw_only=True)
class Blind(Unseen):
    """A label more: open: whether inconclusive is right as well. offered: whether a fix is to be offered; None: either,
    and then ``fix`` is not asked. facts: patterns that what is printed must match. truth: what is so, for whoever reads
    the result."""

    fix: bool = False
    open: bool = False
    offered: bool | None = None
    facts: tuple[str, ...] = ()
    truth: str = ""


CASES: list[Unseen] = []


def blind(
    kind: str,
    mode: str,
    who: str = "",
    why: str = "",
    *,
    status: int | None = None,
    facts: Sequence[str] = (),
    extra: str = "",
    also: str = "",
    cases: list[Unseen] = CASES,
    seed: int = 1127,
    **more: Any,
) -> Callable[[Build], Build]:
    """One model in a mode, named by its function, whose docstring is what is so."""

    def register(build: Build) -> Build:
        def make(folder: Path) -> tuple[Path, None, dict[str, Array]]:
            g = Graph(seed=seed)
            outputs = build(g)
            return g.save(folder / f"{build.__name__}.onnx", outputs), None, g.feeds

        cases.append(
            Blind(
                name=build.__name__,
                kind=kind,
                mode=mode,
                make=make,
                who=tuple(who.split()),
                why=tuple(why.split()),
                status=int(bool(who)) if status is None else status,
                facts=tuple(facts),
                extra=tuple(extra.split()),
                also=tuple(also.split()),
                truth=" ".join((build.__doc__ or "").split()),
                **more,
            )
        )
        return build

    return register


def write_samples(
    folder: Path, xs: Sequence[Any], words: list[str], script: str, labels: Any, options: Sequence[str]
) -> None:
    """Write a folder of inputs with a script and labels; words: the options of the command, which name them."""
    (folder / "in").mkdir(exist_ok=True)
    for place, x in enumerate(xs):
        np.savez(folder / "in" / f"{place:03d}.npz", x=x)
    words[:] = ["--inputs", str(folder / "in")]
    if script:
        (folder / "mine.py").write_text(script)
    if labels is not None:
        np.save(folder / "labels.npy", labels)
        words.extend(["--labels", str(folder / "labels.npy")])
    words.extend(one.replace("FOLDER", str(folder)) for one in options)


def samples(
    name: str,
    build: Build,
    feeds: Callable[[np.random.Generator], Sequence[Array]],
    options: Sequence[str],
    *,
    truth: str,
    script: str = "",
    labels: Callable[[Graph, Sequence[Array]], Array] | None = None,
    **label: Any,
) -> None:
    """A model with open batch left out: many samples in a folder, one file each; a metric's script; labels."""
    words: list[str] = []

    def make(folder: Path) -> tuple[Path, None, None]:
        g = Graph(seed=1127)
        xs = feeds(np.random.default_rng(3))
        g.feeds["x"] = xs[0]
        file = g.save(folder / f"{name}.onnx", build(g))
        known = None if labels is None else labels(g, xs)
        write_samples(folder, xs, words, script, known, options)
        return file, None, None

    CASES.append(Blind(name=name, make=make, options=words, truth=truth, **label))


def pair(
    name: str,
    build: Build,
    change: Callable[[Graph], Any],
    who: str = "",
    why: str = DIFFER,
    *,
    kind: str,
    mode: str = "ort_fp32",
    other: bool = False,
    extra: str = "",
    also: str = "",
    facts: Sequence[str] = (),
    shape: tuple[str, Sequence[int]] | None = None,
    status: int | None = None,
    **more: Any,
) -> None:
    """Two files. other: ``change`` builds the target anew. shape: of an output that onnx cannot infer."""

    def make(folder: Path) -> tuple[Path, Path, dict[str, Array]]:
        plain, changed = Graph(seed=1127), Graph(seed=1127)
        base = plain.save(folder / "base.onnx", build(plain))
        outputs: Any = (change if other else build)(changed)
        if not other:
            change(changed)
        file = changed.save(folder / f"{name}.onnx", outputs)
        if shape:
            model = onnx.load(file)
            at = next(n for n, one in enumerate(model.graph.output) if one.name == shape[0])
            model.graph.output[at].CopyFrom(helper.make_tensor_value_info(shape[0], TensorProto.FLOAT, shape[1]))
            onnx.save(model, file)
        return file, base, plain.feeds

    CASES.append(
        Blind(
            name=name,
            kind=kind,
            mode=mode,
            make=make,
            who=tuple(who.split()),
            why=tuple(why.split()),
            status=int(bool(who)) if status is None else status,
            baseline="ort_fp32",
            extra=tuple(extra.split()),
            also=tuple(also.split()),
            facts=tuple(facts),
            **more,
        )
    )


# --- slices


@blind(
    "slices",
    "ort_int8",
    "y",
    "packed coarse coarse_scale outlier_channel",
    facts=["lost"],
    offered=True,
    extra="pixels unit sure",
)
def seventeen_keypoints_with_their_confidence(g: Graph) -> Sequence[str]:
    """x and y of up to 480 pixels and a confidence below 1 share one scale of 1.9: every confidence becomes 0 or is
    rounded to it, and the whole output is off by a thousandth."""
    x = g.norm(tokens(g, 32, 17), 32, "n")
    pixels = g.op("Mul", [g.op("Sigmoid", [g.dense(x, 32, 2, "at")], "unit"), k(g, "screen", 480)], "pixels")
    sure = g.op("Sigmoid", [g.dense(x, 32, 1, "c")], "sure")
    return [g.op("Concat", [pixels, sure], "y", axis=-1)]


@blind(
    "slices",
    "ort_int8",
    "y y_mm",
    "packed coarse coarse_scale outlier_channel constant_scale underflow",
    facts=["lost"],
    offered=True,
    extra="y y_mm r",
)
def speed_beside_metres_from_one_layer(g: Graph) -> Sequence[str]:
    """One layer gives metres of 30, sizes of 2, an angle of 1 and speeds of 0.05: no Concat; the speeds (columns 7
    and 8) are below one step of the output, and of the weights."""
    x = g.op("Relu", [g.dense(g.norm(tokens(g, 32, 16), 32, "n"), 32, 64, "a")], "r")
    y = g.dense(x, 64, 9, "y")
    size = np.array([30, 30, 2, 2, 2, 2, 1, 0.05, 0.05], np.float32)
    g.weights["y.w"] = g.weights["y.w"] * size
    g.weights["y.b"] = g.weights["y.b"] * size
    return [y]


@blind("healthy", "ort_int8")
def tails_of_two_hundred_classes(g: Graph) -> Sequence[str]:
    """A softmax of 200 classes: of most of them a step of 1/256 leaves nothing, which is right, for they say "no"."""
    x = g.norm(tokens(g), 32, "n")
    return [g.op("Softmax", [g.dense(x, 32, 200, "a", scale=3.0)], "y", axis=-1)]


# --- a metric with a bound


def classes(g: Graph) -> Sequence[str]:
    middle = np.random.default_rng(5).normal(size=(32, 6))
    middle[0] = 0  # what is large tells nothing
    x = g.op("MatMul", ["x", k(g, "first", middle)], "product")
    return [g.op("Add", [x, k(g, "bias", np.linspace(-0.1, 0.1, 6))], "y")]


def crowd(r: np.random.Generator) -> list[Array]:
    middle = np.random.default_rng(5).normal(size=(32, 6))
    found = []
    for place in range(48):
        x = 0.5 * middle[:, place % 6] + 0.3 * r.normal(size=32)
        x[0] = r.uniform(60, 120)
        found.append(x[None].astype(np.float32))
    return found


samples(
    "accuracy_that_holds_behind_a_coarse_input",
    classes,
    crowd,
    ["--metric", "FOLDER/mine.py:top", "--metric_drop", "5%"],
    script="def top(outputs, label):\n    return float(outputs['y'].argmax() == label)\n",
    labels=lambda _g, xs: np.arange(len(xs)) % 6,
    truth="A feature of up to 120 that no weight reads makes the input's step 0.5: logits are off by several per cent, "
    "the accuracy stays within the 5 % that the user allows: it decides, the run passes.",
    kind="metric",
    mode="ort_int8",
    status=0,
    anyone=True,
    who=("x", "product", "y"),
    facts=(r"\btop\b",),
    extra=("x", "product", "y"),
    why=("coarse", "coarse_scale", "outlier_channel", "packed"),
)


def detector(g: Graph) -> Sequence[str]:
    unit = g.op("Sigmoid", [g.dense("x", 16, 4, "at")], "unit")
    boxes = g.op("Mul", [unit, k(g, "screen", 640)], "boxes")
    return [g.op("Concat", [boxes, g.op("Sigmoid", [g.dense("x", 16, 1, "s", scale=2.0)], "score")], "y", axis=-1)]


def seen(g: Graph, xs: Sequence[Array]) -> Array:
    """Which of the places hold an object: where the score is above a half, in float64."""
    logit = [x[0].astype(np.float64) @ g.weights["s.w"].astype(np.float64) + g.weights["s.b"] for x in xs]
    return (np.array(logit)[..., 0] > 0).astype(np.int64)


samples(
    "recall_that_falls_to_nothing",
    detector,
    lambda r: [r.normal(size=(1, 20, 16)).astype(np.float32) for _ in range(8)],
    ["--metric", "FOLDER/mine.py:recall", "--metric_drop", "0.05"],
    script="def recall(outputs, label):\n    score = outputs['y'][0, :, 4]\n"
    "    return int(((score > 0.5) & (label > 0)).sum()), int((label > 0).sum())\n",
    labels=seen,
    truth="Boxes in pixels and scores share one scale of 2.5: no score is above a half any more, recall "
    "falls from 1 to 0 "
    "(the whole output is off by two thousandths).",
    kind="metric",
    mode="ort_int8",
    status=1,
    who=("y",),
    why=("packed", "coarse", "coarse_scale", "outlier_channel"),
    facts=("recall",),
    offered=True,
    extra=("boxes", "score", "unit"),
)


# --- integers


def whole_ids(g: Graph) -> Sequence[str]:
    a = g.input("a", g.random.integers(20_000, 60_000, size=(8, 16)))
    b = g.input("b", g.random.integers(0, 1000, size=(8, 16)))
    return [g.op("Add", [g.op("Mul", [a, ints(g, "thousand", 1000)], "wide"), b], "id")]


def ids_by_float(g: Graph) -> Sequence[str]:
    a = g.input("a", g.random.integers(20_000, 60_000, size=(8, 16)))
    b = g.input("b", g.random.integers(0, 1000, size=(8, 16)))
    fa, fb = g.op("Cast", [a], "fa", to=TensorProto.FLOAT), g.op("Cast", [b], "fb", to=TensorProto.FLOAT)
    wide = g.op("Mul", [fa, k(g, "thousand", 1000)], "fwide")
    return [g.op("Cast", [g.op("Add", [wide, fb], "fid")], "id", to=TensorProto.INT64)]


pair(
    "ids_of_forty_million_through_float32",
    whole_ids,
    ids_by_float,
    "fid id",
    f"{DIFFER} coarse cancellation flips wrapped",
    kind="integers",
    other=True,
    extra="fid id fwide fa fb",
    truth="Ids of 20 to 60 million are added in float32, which knows every second or fourth number there: most are off "
    "by one or two.",
)


def hashes(g: Graph) -> Sequence[str]:
    key = g.input("key", (1 << 60) + g.random.integers(0, 1 << 40, size=(4, 8)))
    mixed = g.op("Add", [key, ints(g, "salt", 7)], "mixed")
    return [g.op("Mul", [mixed, ints(g, "one", 1)], "y")]


pair(
    "salt_of_eight_beyond_2_60",
    hashes,
    lambda g: g.weights.update(salt=np.array([8], np.int64)),
    "mixed",
    kind="integers",
    extra="y",
    truth="Every key of 2^60 is off by one, which float64 cannot tell.",
)


# --- inputs that did not calibrate


def small_net(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.dense("x", 16, 32, "a")], "r")
    return [g.dense(x, 32, 4, "y")]


samples(
    "three_quiet_samples_and_three_loud_ones",
    small_net,
    lambda r: [((1 if n < 3 else 20) * r.normal(size=(1, 8, 16))).astype(np.float32) for n in range(6)],
    [],
    truth="The first three samples calibrate, and the others are twenty times as large: they are cut off, and off by "
    "nine tenths of themselves.",
    kind="unseen",
    mode="ort_int8",
    status=1,
    who=("x", "a_mm", "a", "r", "y_mm", "y"),
    anyone=True,
    why=("saturation", "coarse", "scale"),
    extra=("x", "a_mm", "a", "r", "y_mm", "y"),
    facts=("calibrat|saturat|clip|cut off",),
)


# --- the type that really runs


def two_layers(g: Graph) -> Sequence[str]:
    g.opset = 21
    h = g.op("Tanh", [g.dense(tokens(g), 32, 32, "a")], "h")
    t = g.op("Tanh", [g.dense(h, 32, 32, "b")], "t")
    return [g.dense(t, 32, 8, "y")]


def sixteen(g: Graph, name: str, scale: float) -> None:
    """A 16-bit quantisation between a tensor and its reader."""
    reader = next(n for n in g.nodes if name in n.input)
    at = g.nodes.index(reader)
    s, z = k(g, f"{name}_scale", scale), g.weight(f"{name}_zero", np.array(32768, np.uint16))
    pair_of = [
        helper.make_node("QuantizeLinear", [name, s, z], [f"{name}_q"], name=f"node_{name}_q"),
        helper.make_node("DequantizeLinear", [f"{name}_q", s, z], [f"{name}_dq"], name=f"node_{name}_dq"),
    ]
    reader.input[:] = [f"{name}_dq" if one == name else one for one in reader.input]
    g.nodes[at:at] = pair_of


pair(
    "scale_sixty_four_times_too_coarse_in_16_bits",
    two_layers,
    lambda g: (sixteen(g, "h", 2 / 65535), sixteen(g, "t", 64 * 2 / 65535)),
    "t_q t_dq t",
    f"{DIFFER} scale coarse_scale coarse reads_rounded",
    kind="units",
    mode="ort_opt",
    extra="t_q t_dq t y_mm",
    truth="Both tensors are quantised to 16 bits; the second's scale is 64 times as coarse as its range asks: off by a "
    "thousandth, where 16 bits cost some hundred-thousandths.",
)


def four_bits(g: Graph) -> tuple[Array, Array]:
    """Nibbles of [64, 16] weights, and their scales for blocks of 32."""
    r = np.random.default_rng(9)
    return r.integers(0, 16, size=(16, 64)).astype(np.uint8), r.uniform(0.02, 0.03, size=(16, 2)).astype(np.float32)


def unpacked(g: Graph) -> Sequence[str]:
    nibbles, scale = four_bits(g)
    w = (nibbles.reshape(16, 2, 32).astype(np.float32) - 8) * scale[..., None]
    h = g.op("MatMul", [tokens(g, 64), k(g, "w", w.reshape(16, 64).T)], "h")
    return [g.op("Tanh", [h], "y")]


def packed(g: Graph) -> Sequence[str]:
    nibbles, scale = four_bits(g)
    scale[5, 1] *= 1.5
    low, high = nibbles[:, ::2], nibbles[:, 1::2]
    g.weight("w4", (low | (high << 4)).reshape(16, 2, 16))
    k(g, "s4", scale.ravel())
    g.op("MatMulNBits", [tokens(g, 64), "w4", "s4"], "h", domain="com.microsoft", K=64, N=16, bits=4, block_size=32)
    return [g.op("Tanh", ["h"], "y")]


pair(
    "one_block_of_four_bits_with_another_scale",
    unpacked,
    packed,
    "h",
    f"{DIFFER} scale constant_scale coarse_scale coarse",
    kind="units",
    other=True,
    shape=("y", (2, 8, 16)),
    extra="y",
    truth="The first file holds the same weights as numbers: all agrees but column 5, where one of two "
    "blocks has 1.5 times "
    "its scale.",
)


def two_roads(g: Graph) -> Sequence[str]:
    x = tokens(g)
    left = g.dense(g.op("Tanh", [g.dense(x, 32, 32, "a")], "t"), 32, 8, "left")
    return [left, g.dense(g.op("Tanh", [g.dense(x, 32, 32, "b")], "u"), 32, 8, "right")]


def island(g: Graph) -> None:
    at = g.nodes.index(next(n for n in g.nodes if "t" in n.input))
    g.nodes[at].input[0] = "t32"
    g.nodes[at:at] = [
        helper.make_node("Cast", ["t"], ["t16"], name="node_t16", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["t16"], ["t32"], name="node_t32", to=TensorProto.FLOAT),
    ]
    g.weights["right.w"] = g.weights["right.w"] * np.float32(1.003)


pair(
    "island_of_bfloat16_on_the_other_road",
    two_roads,
    island,
    "right_mm right",
    kind="units",
    also="right_mm",
    extra="right t16 t32 t left_mm left",
    truth="`left` passes through bfloat16 and is off by two thousandths, as that costs; `right` is FP32 "
    "throughout, and "
    "its last weights are 1.003 times the other file's: off by 0.003.",
)


@blind("healthy", "ort_fp16", open=True, facts=["FP32|float32"])
def half_file_on_a_cpu(g: Graph) -> Sequence[str]:
    """Healthy; a CPU without FP16 kernels computes it in FP32, which has to be said."""
    x = g.mlp(g.norm(tokens(g), 32, "n"), 32, "m")
    return [g.op("Softmax", [g.dense(x, 32, 8, "y0")], "y", axis=-1)]


# --- cut differently, and shapes


def one_attention(g: Graph) -> Sequence[str]:
    x = g.attention(g.norm(tokens(g), 32, "n"), 32, "l")
    return [g.dense(x, 32, 8, "y")]


def fused(g: Graph) -> None:
    gone = {f"node_l_{one}{part}" for one in "qkv" for part in ("", "_mm")}
    at = min(n for n, node in enumerate(g.nodes) if node.name in gone)
    g.nodes[:] = [node for node in g.nodes if node.name not in gone]
    w, b = (np.concatenate([g.weights.pop(f"l_{one}.{part}") for one in "qkv"], -1) for part in "wb")
    names = [k(g, "l_qkv.w", w), k(g, "l_qkv.b", b)]
    g.nodes[at:at] = [
        helper.make_node("MatMul", ["n", names[0]], ["l_qkv_mm"], name="node_l_qkv_mm"),
        helper.make_node("Add", ["l_qkv_mm", names[1]], ["l_qkv"], name="node_l_qkv"),
        helper.make_node("Split", ["l_qkv"], ["l_q", "l_k", "l_v"], name="node_l_split", axis=-1),
    ]


pair(
    "three_projections_made_one",
    one_attention,
    fused,
    kind="cut",
    truth="One product in place of three gives the same: nothing is wrong.",
)


def square(g: Graph) -> Sequence[str]:
    h = g.dense(g.norm(tokens(g, 16, 16), 16, "n"), 16, 16, "h")
    return [g.op("Tanh", [h], "y")]


def turned(g: Graph) -> None:
    g.nodes[-1].output[0] = "tanh"
    g.nodes.append(helper.make_node("Transpose", ["tanh"], ["y"], name="node_y_turned", perm=[0, 2, 1]))


pair(
    "square_answer_that_is_returned_transposed",
    square,
    turned,
    "y",
    kind="shape",
    extra="tanh",
    truth="The output has the same shape and is transposed: the caller reads other numbers.",
)


# --- decisions


@blind("decision", "ort_bf16_sim", facts=["argmax|decision|flip|turn|moved"], seed=40)
def best_of_twenty_for_1024_rows(g: Graph) -> Sequence[str]:
    """Of 1024 rows three turn to their second best, whose score is a rounding away: as bfloat16 does."""
    x = g.input("x", g.random.normal(size=(1024, 32)).astype(np.float32))
    score = g.dense(x, 32, 20, "score")
    best = g.op("ArgMax", [score], "best", axis=-1, keepdims=0)
    return [best, g.dense(g.op("Gather", [k(g, "table", g.random.normal(size=(20, 8))), best], "rows"), 8, 4, "y")]


@blind(
    "decision",
    "ort_bf16_sim",
    "word logits steps",
    "flips cancellation coarse amplified inside_body",
    status=0,
    open=True,
    anyone=True,
    facts=["argmax|decision|flip|turn|moved|word"],
    extra="word logits steps",
    seed=43,
)
def greedy_words_inside_a_loop(g: Graph) -> Sequence[str]:
    """A loop chooses the best of 24 words and goes on from its row; where two are a rounding apart another word is
    chosen in bfloat16, and that sequence goes on differently."""
    x = g.input("x", g.random.normal(size=(32, 16)).astype(np.float32))
    body = _body(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="body_go"),
            helper.make_node("MatMul", ["state", "head"], ["logits"], name="body_logits"),
            helper.make_node("ArgMax", ["logits"], ["word"], name="body_word", axis=-1, keepdims=0),
            helper.make_node("Gather", ["table", "word"], ["row"], name="body_row"),
            helper.make_node("Mul", ["state", "part"], ["old"], name="body_old"),
            helper.make_node("Add", ["old", "row"], ["sum"], name="body_sum"),
            helper.make_node("Tanh", ["sum"], ["next"], name="body_next"),
        ],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [32, 16])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [32, 16]), _info("word", [32], TensorProto.INT64)],
        {"part": np.float32(0.5)},
    )
    k(g, "head", g.random.normal(size=(16, 24)))
    k(g, "table", g.random.normal(size=(24, 16)))
    g.nodes.append(
        helper.make_node("Loop", [g.weight("n", np.int64(8)), "", x], ["last", "words"], name="node_loop", body=body)
    )
    return [g.op("Identity", ["words"], "steps"), g.dense("last", 16, 4, "y")]


def suppressed(g: Graph) -> Sequence[str]:
    corner = g.random.uniform(0, 80, size=(1, 24, 2))
    boxes = g.input("boxes", np.concatenate([corner, corner + 20], -1).astype(np.float32))
    x = g.input("x", g.random.normal(size=(1, 24, 16)).astype(np.float32))
    score = g.op("Sigmoid", [g.dense(x, 16, 2, "s")], "score")
    turned = g.op("Transpose", [score], "by_class", perm=[0, 2, 1])
    limits = [g.weight("most", np.array([20], np.int64)), k(g, "iou", [0.4]), k(g, "least", [0.5])]
    return [g.op("NonMaxSuppression", [boxes, turned, *limits], "chosen"), g.op("Identity", [score], "scores")]


pair(
    "suppression_of_scores_of_another_checkpoint",
    suppressed,
    lambda g: g.weights.update({"s.b": g.weights["s.b"] + np.array([0, 0.6], np.float32)}),
    "s",
    kind="decision",
    extra="s_mm",
    truth="The second class's bias is 0.6 above the other file's; more boxes are chosen because of it: the suppression "
    "does as it is told.",
)


# --- OpenVINO


@blind("healthy", "ov_int8")
def boxes_and_scores_that_nncf_leaves_apart(g: Graph) -> Sequence[str]:
    """NNCF quantises what products read, and no output: boxes and scores keep their own sizes."""
    x = g.norm(tokens(g, 32, 16), 32, "n")
    unit = g.op("Sigmoid", [g.dense(x, 32, 4, "box")], "unit")
    boxes = g.op("Mul", [unit, k(g, "screen", 640)], "boxes")
    return [g.op("Concat", [boxes, g.op("Sigmoid", [g.dense(x, 32, 3, "class")], "prob")], "y", axis=-1)]


@blind(
    "slices",
    "ov_bf16",
    "late late_mm",
    "cancellation cancels amplified coarse packed",
    facts=["lost"],
    extra="late late_mm change y",
)
def change_between_levels_of_seven_hundred(g: Graph) -> Sequence[str]:
    """Levels of 700, where bfloat16 knows every fourth number, and their differences of one in one output: the
    differences are lost, the whole is off by some thousandths."""
    late = g.dense(g.norm(tokens(g, 32, 16), 32, "n"), 32, 16, "late")
    g.weights["late.b"] = g.weights["late.b"] + np.float32(700)
    step = np.eye(16)[:, :8] - np.eye(16)[:, 8:]
    change = g.op("MatMul", [late, k(g, "step", step)], "change")
    return [g.op("Concat", [late, change], "y", axis=-1)]


@blind(
    "integers",
    "ov_opt",
    "y",
    f"{DIFFER} wrapped kernels_disagree wrong_kernel unfound coarse held_narrower found_by_repair",
    baseline="ort_fp32",
    extra="y z",
)
def ids_of_three_thousand_million(g: Graph) -> Sequence[str]:
    """OpenVINO's CPU computes 64-bit integers in 32 bits: ids beyond 2^31 come out as another number."""
    ids = g.input("ids", 3_000_000_000 + g.random.integers(0, 1000, size=(4, 8)))
    x = g.input("x", g.random.normal(size=(4, 8)).astype(np.float32))
    return [g.op("Add", [ids, ints(g, "one", 1)], "y"), g.op("Tanh", [x], "z")]
