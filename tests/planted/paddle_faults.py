"""Small Paddle models with one planted fault each, and clean ones: who did it, and why, is known.

Paddle's names count the operators of one type in the program's order: "add_1@Linear" is the second addition.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CASES", "Case"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """make: writes the model (and, for two files, the baseline's) into a folder; returns the target's and feeds.

    who: tensors any of which is right as the first culprit; () for a clean or benign model. why: accepted cause codes.
    baseline: its mode where there are two files.
    """

    name: str
    kind: str
    mode: str
    make: Callable[[Path], tuple[Path, Path | None, dict[str, Array]]]
    who: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    baseline: str = "cpu_fp32"
    options: Mapping[str, Any] = field(default_factory=dict)


CASES: list[Case] = []

Forward = Callable[[Any, Any], Any]
TOKENS, IMAGE = (2, 8, 32), (2, 3, 16, 16)


def _written(
    folder: Path, name: str, parts: Callable[[Any], Mapping[str, Any]], forward: Forward, shape: Sequence[int],
    change: Callable[[dict[str, Array]], None] | None,
) -> Path:  # fmt: skip
    """Export a layer made of parts. Weights are seeded; change(weights): may edit them, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Paddle misses a compiler's cache while it is imported
        import paddle
        from paddle import nn

    traced = paddle.jit.not_to_static(forward)  # as it is, not as Paddle would rewrite it

    class Net(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            for key, part in parts(nn).items():
                setattr(self, key, part)

        def forward(self, x: Any) -> Any:
            return traced(self, x)

    paddle.seed(0)
    with paddle.utils.unique_name.guard(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = Net()
        rng = np.random.default_rng(7)
        weights = {}
        for key, value in net.state_dict().items():
            size = tuple(value.shape)
            fan_in = size[0] if len(size) == 2 else int(np.prod(size[1:]))
            array = rng.normal(size=size) / np.sqrt(fan_in) if len(size) > 1 else value.numpy()
            weights[key] = np.array(array, np.float32)
        if change is not None:
            change(weights)
        for key, value in net.state_dict().items():
            value.set_value(weights[key])
        net.eval()
        spec = paddle.static.InputSpec([None, *shape[1:]], "float32", name="x")
        paddle.jit.save(paddle.jit.to_static(net, input_spec=[spec], full_graph=True), str(folder / name))
    return folder / f"{name}.json"


def _feeds(shape: Sequence[int], scale: float = 1.0) -> dict[str, Array]:
    return {"x": (np.random.default_rng(3).normal(size=shape) * scale).astype(np.float32)}


def case(
    kind: str, mode: str, who: Sequence[str] = (), why: Sequence[str] = (), *, shape: Sequence[int] = TOKENS,
    parts: Callable[[Any], Mapping[str, Any]] = lambda nn: {}, change: Callable[[dict[str, Array]], None] | None = None,
) -> Callable[[Forward], Forward]:  # fmt: skip
    """Register the function of (layer, x) that is the model's forward; its name is the case's."""

    def register(forward: Forward) -> Forward:
        name = forward.__name__.strip("_")

        def make(folder: Path) -> tuple[Path, Path | None, dict[str, Array]]:
            return _written(folder, name, parts, forward, shape, change), None, _feeds(shape)

        CASES.append(Case(f"{name}_{mode}", kind, mode, make, tuple(who), tuple(why)))
        return forward

    return register


def _linears(*names: str, size: int = 32) -> Callable[[Any], Mapping[str, Any]]:
    return lambda nn: {name: nn.Linear(size, size) for name in names}


def _full(value: float, size: int = 32) -> Any:
    """A constant that no pass folds into its neighbours."""
    import paddle

    return paddle.full([size], value, "float32")


# --- cancellation, and rounding that a later operator makes large. oneDNN computes additions, products, matrices,
# softmax and layer norms in bfloat16; a subtraction, sin or exp stay in FP32 and are given what was rounded before.


@case("cancellation", "onednn_bf16", ["add_1"], ["cancellation"], parts=_linears("a", "b"))
def shift_and_back(net: Any, x: Any) -> Any:
    import paddle

    return net.b(paddle.add(paddle.add(net.a(x), _full(2000.0)), _full(-2000.0)))


@case("cancellation", "onednn_bf16", ["add_0@Linear", "multiply_0", "add_1"], ["cancellation"],
      parts=_linears("a", "b"))  # fmt: skip
def two_branches(net: Any, x: Any) -> Any:
    import paddle

    u = paddle.multiply(net.a(x), _full(100.0))
    w = paddle.add(u, paddle.multiply(x, _full(0.5)))
    return net.b(paddle.add(w, paddle.multiply(u, _full(-1.0))))


@case("cancellation", "onednn_bf16", ["add_0"], ["cancellation"], shape=IMAGE,
      parts=lambda nn: {"a": nn.Conv2D(3, 8, 3, padding=1, bias_attr=False),
                        "b": nn.Conv2D(8, 4, 3, padding=1, bias_attr=False)})  # fmt: skip
def conv_shift(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.add(net.a(x), paddle.full([8, 1, 1], 500.0, "float32"))
    return net.b(paddle.add(y, paddle.full([8, 1, 1], -500.0, "float32")))


@case("cancellation", "onednn_bf16", ["multiply_0", "add_1"], ["cancellation"], parts=_linears("a", "b"))
def scaled_shift(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.multiply(paddle.add(net.a(x), _full(300.0)), _full(3.0))
    return net.b(paddle.add(y, _full(-900.0)))


@case("amplified", "onednn_bf16", ["add_0"], ["amplified", "cancellation"],
      parts=lambda nn: {"norm": nn.LayerNorm(32), "b": nn.Linear(32, 32)})  # fmt: skip
def norm_of_an_offset(net: Any, x: Any) -> Any:
    import paddle

    return net.b(net.norm(paddle.add(x, _full(1000.0))))


def _centred(weights: dict[str, Array]) -> None:
    weights["b.weight"] -= weights["b.weight"].mean(axis=0)


@case("cancellation", "onednn_bf16", ["add_0", "add_1@Linear"], ["cancellation", "amplified"], parts=_linears("b"),
      change=_centred)  # fmt: skip
def offset_into_centred_weights(net: Any, x: Any) -> Any:
    import paddle

    return net.b(paddle.add(x, _full(1000.0)))


@case("amplified", "onednn_bf16", ["add_1"], ["amplified", "cancellation"], parts=_linears("a"))
def softmax_of_an_offset(net: Any, x: Any) -> Any:
    import paddle

    return paddle.nn.functional.softmax(paddle.add(net.a(x), _full(1000.0)))


@case("amplified", "onednn_bf16", ["add_0@Linear", "multiply_0"], ["amplified"], parts=_linears("a"))
def exponential(net: Any, x: Any) -> Any:
    import paddle

    return paddle.exp(paddle.multiply(net.a(x), _full(60.0)) - 120.0)


@case("amplified", "onednn_bf16", ["add_0@Linear", "multiply_0"], ["amplified"], parts=_linears("a", "b"))
def large_angle(net: Any, x: Any) -> Any:
    import paddle

    return net.b(paddle.sin(paddle.multiply(net.a(x), _full(300.0))))


@case("amplified", "onednn_bf16", ["add_2"], ["amplified", "cancellation"], parts=_linears("q", "k", "v"))
def offset_of_all_keys(net: Any, x: Any) -> Any:
    import paddle

    score = paddle.matmul(net.q(x), paddle.add(net.k(x), _full(2000.0)), transpose_y=True)
    return paddle.matmul(paddle.nn.functional.softmax(score), net.v(x))


# --- the two files differ


def two_files(
    name: str, mode: str, who: Sequence[str], change: Callable[[dict[str, Array]], None] | None = None,
    parts: Callable[[Any], Mapping[str, Any]] | None = None, base: Callable[[Any], Mapping[str, Any]] | None = None,
) -> None:  # fmt: skip
    """A net, and the same with other weights or parts. base: the parts of both."""
    plain = base or _net

    def make(folder: Path) -> tuple[Path, Path | None, dict[str, Array]]:
        first = _written(folder, f"{name}_base", plain, net, IMAGE, None)
        return _written(folder, name, parts or plain, net, IMAGE, change), first, _feeds(IMAGE)

    CASES.append(Case(f"{name}_{mode}", "files", mode, make, tuple(who), ("files_differ",)))


def _net(nn: Any, **other: Any) -> Mapping[str, Any]:
    plain = {
        "conv": nn.Conv2D(3, 8, 3, padding=1), "bn": nn.BatchNorm2D(8), "act": nn.LeakyReLU(0.1),
        "fc": nn.Linear(8, 16), "norm": nn.LayerNorm(16), "last": nn.Linear(16, 4),
    }  # fmt: skip
    return {**plain, **other}


def net(parts: Any, x: Any) -> Any:
    y = parts.act(parts.bn(parts.conv(x))).mean(axis=[2, 3])
    return parts.last(parts.norm(parts.fc(y)) * 0.5)


def _set(key: str, place: Any, value: float) -> Callable[[dict[str, Array]], None]:
    def change(weights: dict[str, Array]) -> None:
        weights[key][place] = value

    return change


two_files("one_element", "cpu_fp32", ["matmul_0@Linear"], _set("fc.weight", (3, 4), 3.0))
two_files(
    "one_element_of_a_fused_operator", "onednn_fp32", ["add_1@Linear"], _set("fc.weight", (3, 4), 3.0),
    base=lambda nn: _net(nn, act=nn.ReLU()),
)  # fmt: skip
two_files("conv_weight", "cpu_fp32", ["conv2d_0@Conv2D"], _set("conv.weight", (2, 1), 0.7))
two_files("other_bias", "cpu_opt", ["add_1@Linear"], _set("fc.bias", 3, 2.0))
two_files("other_variance", "cpu_fp32", ["batch_norm_0@BatchNorm2D"], _set("bn._variance", 2, 9.0))
two_files(
    "other_epsilon", "cpu_fp32", ["layer_norm_0@LayerNorm"],
    parts=lambda nn: _net(nn, norm=nn.LayerNorm(16, epsilon=1e-3)),
)  # fmt: skip
two_files("other_slope", "cpu_opt", ["leaky_relu_0@LeakyReLU"], parts=lambda nn: _net(nn, act=nn.LeakyReLU(0.3)))
two_files(
    "other_dilation", "cpu_fp32", ["conv2d_0@Conv2D"],
    parts=lambda nn: _net(nn, conv=nn.Conv2D(3, 8, 3, padding=2, dilation=2)),
)  # fmt: skip

# --- clean


def _transformer_parts(nn: Any) -> Mapping[str, Any]:
    return {"body": nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu"), 2)}


def transformer(net: Any, x: Any) -> Any:
    return net.body(x)


def _cnn_parts(nn: Any) -> Mapping[str, Any]:
    return {
        "a": nn.Conv2D(3, 8, 3, padding=1, bias_attr=False), "fc": nn.Linear(8, 10),
        "b": nn.Conv2D(8, 8, 3, padding=1, bias_attr=False),
    }  # fmt: skip


def cnn(net: Any, x: Any) -> Any:
    import paddle.nn.functional as F

    y = F.relu(net.a(x))
    y = F.relu(net.b(y))
    return F.softmax(net.fc(F.adaptive_avg_pool2d(y, 1).flatten(1)))


def convs(net: Any, x: Any) -> Any:
    import paddle.nn.functional as F

    return net.b(F.relu(net.a(x)))


def masked(net: Any, x: Any) -> Any:
    import paddle
    import paddle.nn.functional as F

    mask = paddle.to_tensor(np.array([0, 0, 0, 0, 0, 0, -1e9, -1e9], np.float32))
    score = paddle.matmul(net.q(x), net.k(x), transpose_y=True) * 0.2
    return net.b(paddle.matmul(F.softmax(paddle.add(score, mask)), net.v(x)))


def mlp(net: Any, x: Any) -> Any:
    import paddle.nn.functional as F

    return net.b(F.gelu(net.a(x))) + x


for _mode in ("onednn_bf16", "cpu_opt", "onednn_fp32"):
    case("clean", _mode, parts=_transformer_parts)(transformer)
    # in bfloat16 this Paddle fails on the pooling between convolutions and a linear layer
    case("clean", _mode, parts=_cnn_parts, shape=IMAGE)(convs if _mode == "onednn_bf16" else cnn)
case("clean", "onednn_bf16", parts=_linears("q", "k", "v", "b"))(masked)
case("clean", "onednn_bf16", parts=_linears("a", "b"))(mlp)
