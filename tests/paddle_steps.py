"""Training steps of small nn.Layers for the tests of Paddle: with one planted fault each, and healthy ones.

A step with ``baseline`` is compared with that function's in float32, any other with itself in float64. ``FAULTS`` says
who is to be named, as the beginning of a row's name, and was written before the steps were run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
from paddle import nn

F = nn.functional


@dataclass(frozen=True, kw_only=True)
class Fault:
    """who: beginnings of names of rows that may be named first. causes: codes that may be said; (): any."""

    who: tuple[str, ...]
    causes: tuple[str, ...] = ()
    step: str = "backward"
    baseline: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


FAULTS = {
    "wrong_derivative": Fault(who=("backward/act/Gelu/",), baseline="healthy_mlp"),
    "rounded_gradient": Fault(who=("backward/act/Gelu/",), baseline="healthy_mlp"),
    "saved_the_result": Fault(who=("backward/act/Gelu/",), baseline="healthy_mlp"),
    "mean_for_sum": Fault(who=("backward/shift/Shift/",), baseline="shifted"),
    "underflow_in_cast": Fault(who=("backward/narrow/Half/",), baseline="through_half"),
    "root_of_zero": Fault(who=("backward/sqrt/sqrt_grad", "sqrt", "add")),
    "reduced_by_hand": Fault(who=("divide",), baseline="averaged"),
    "exponentials_by_hand": Fault(who=("exp",)),
    "variance_by_hand": Fault(who=("subtract", "mean", "multiply"), causes=("cancellation", "amplified", "cancels")),
    "scale_beyond_range": Fault(
        who=("backward/", "GradScaler/"), causes=("born", "overflow"), options={"loss_scale": 2.0**126}
    ),
    "clipped_elsewhere": Fault(who=("optimiser/", "update/"), step="optimiser", baseline="momentum"),
    "stagnates": Fault(who=("optimiser/weight/", "update/weight"), causes=("update_lost",), step="optimiser",
                       baseline="wide_weight"),
    "epsilon_below_range": Fault(who=("optimiser/table.weight/",), step="optimiser"),
    "doubled_by_hook": Fault(who=("backward/",), baseline="healthy_mlp"),
}  # fmt: skip

HEALTHY = ("healthy_mlp", "convolutions", "encoder", "words", "joined", "computed_again", "decayed")


class Gelu(paddle.autograd.PyLayer):  # type: ignore[misc]
    """GELU with a backward of its own: right, or wrong in a way."""

    @staticmethod
    def forward(ctx: Any, x: Any, way: str) -> Any:
        ctx.way = way
        y = F.gelu(x)
        ctx.save_for_backward(y if way == "result" else x)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensor()
        if ctx.way == "rounded":
            gradient = (gradient * 1e-6).astype("float16").astype(gradient.dtype) * 1e6
        slope = 0.5 * (1 + paddle.erf(x / math.sqrt(2)))
        if ctx.way != "wrong":
            slope = slope + x * paddle.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return gradient * slope


class Act(nn.Layer):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: Any) -> Any:
        if self.way == "doubled":
            x.register_hook(lambda gradient: gradient * 2)
        return Gelu.apply(x, self.way)


class Net(nn.Layer):
    def __init__(self, way: str = "") -> None:
        super().__init__()
        self.norm, self.up, self.act = nn.LayerNorm(8), nn.Linear(8, 16), Act(way)
        self.down, self.head = nn.Linear(16, 8), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(x + self.down(self.act(self.up(self.norm(x)))))


def labels(count: int, kinds: int) -> Any:
    return paddle.to_tensor(np.arange(count) % kinds)


def classified(out: Any) -> Any:
    return F.cross_entropy(out, labels(out.shape[0], out.shape[-1]))


def momentum_of(parameters: Any) -> Any:
    return paddle.optimizer.Momentum(0.01, parameters=parameters)


def mlp(way: str) -> Any:
    return Net(way), paddle.randn([6, 8]), classified, momentum_of


def healthy_mlp() -> Any:
    return mlp("")


def decayed() -> Any:
    """AdamW: its kernel computes 1 - 0.999 in float32, which is off by 1.3e-5, and so is its second moment."""
    return Net(), paddle.randn([6, 8]), classified, lambda parameters: paddle.optimizer.AdamW(
        1e-3, parameters=parameters
    )  # fmt: skip


def wrong_derivative() -> Any:
    return mlp("wrong")


def rounded_gradient() -> Any:
    return mlp("rounded")


def saved_the_result() -> Any:
    return mlp("result")


def doubled_by_hook() -> Any:
    return mlp("doubled")


class Shift(paddle.autograd.PyLayer):  # type: ignore[misc]
    """x + bias; the gradient of the bias is summed, or averaged."""

    @staticmethod
    def forward(ctx: Any, x: Any, bias: Any, mean: bool) -> Any:
        ctx.mean = mean
        return x + bias

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, gradient.mean(axis=0) if ctx.mean else gradient.sum(axis=0)


class Shifting(nn.Layer):
    def __init__(self, mean: bool) -> None:
        super().__init__()
        self.mean, self.bias = mean, self.create_parameter([8])

    def forward(self, x: Any) -> Any:
        return Shift.apply(x, self.bias, self.mean)


class Shifted(nn.Layer):
    def __init__(self, mean: bool) -> None:
        super().__init__()
        self.body, self.shift, self.head = nn.Linear(8, 8), Shifting(mean), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(paddle.tanh(self.shift(self.body(x))))


def shifted() -> Any:
    return Shifted(False), paddle.randn([6, 8]), classified


def mean_for_sum() -> Any:
    return Shifted(True), paddle.randn([6, 8]), classified


class Half(paddle.autograd.PyLayer):  # type: ignore[misc]
    """The gradient goes through float16, or it does not."""

    @staticmethod
    def forward(ctx: Any, x: Any, low: bool) -> Any:
        ctx.low = low
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.astype("float16" if ctx.low else "float32").astype(gradient.dtype)


class Halving(nn.Layer):
    def __init__(self, low: bool) -> None:
        super().__init__()
        self.low = low

    def forward(self, x: Any) -> Any:
        return Half.apply(x, self.low)


class ThroughHalf(nn.Layer):
    def __init__(self, low: bool) -> None:
        super().__init__()
        self.body, self.narrow, self.head = nn.Linear(8, 8), Halving(low), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(F.relu(self.narrow(self.body(x))))


def small(out: Any) -> Any:
    return classified(out) * 1e-6


def through_half() -> Any:
    return ThroughHalf(False), paddle.randn([6, 8]), small


def underflow_in_cast() -> Any:
    return ThroughHalf(True), paddle.randn([6, 8]), small


class Distance(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        moved = self.table(x)
        return paddle.sqrt((moved - moved[0]) ** 2 + 1e-60).mean()


def root_of_zero() -> Any:
    return Distance(), paddle.randn([3, 4])


def by_hand(count: int) -> Any:
    def loss(out: Any) -> Any:
        return (out * out).sum() / count

    return loss


def averaged() -> Any:
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh()), paddle.randn([6, 8]), by_hand(24)


def reduced_by_hand() -> Any:
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh()), paddle.randn([6, 8]), by_hand(23)


def log_softmax_by_hand(out: Any) -> Any:
    size = paddle.exp(out * 100)
    return -paddle.log(size / size.sum(axis=-1, keepdim=True) + 1e-12).mean()


def exponentials_by_hand() -> Any:
    return nn.Linear(8, 4), paddle.randn([6, 8]), log_softmax_by_hand


def variance_by_hand() -> Any:
    def loss(out: Any) -> Any:
        far = out + 3000.0
        return (far * far).mean() - far.mean() * far.mean()

    return nn.Linear(8, 4), paddle.randn([6, 8]), loss


def scale_beyond_range() -> Any:
    return nn.Linear(8, 4), paddle.randn([6, 8]), lambda out: (out * out).sum(), momentum_of


def momentum() -> Any:
    return nn.Linear(8, 4), paddle.randn([6, 8]), classified, momentum_of


def clipped_elsewhere() -> Any:
    clip = paddle.nn.ClipGradByGlobalNorm(0.01)
    return nn.Linear(8, 4), paddle.randn([6, 8]), classified, lambda parameters: paddle.optimizer.Momentum(
        0.01, parameters=parameters, grad_clip=clip
    )  # fmt: skip


class Rounding(paddle.optimizer.SGD):  # type: ignore[misc]
    """Holds what it makes of a parameter in a type."""

    def __init__(self, dtype: str, parameters: Any) -> None:
        super().__init__(1e-4, parameters=parameters)
        self.held = dtype

    def step(self) -> None:
        for one in self._parameter_list:
            paddle.assign((one - one.grad * 1e-4).astype(self.held).astype(one.dtype), output=one)


class Weighed(nn.Layer):
    """A product with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([8, 4], default_initializer=nn.initializer.Constant(0.75))

    def forward(self, x: Any) -> Any:
        return x @ self.weight


def weighed(dtype: str) -> Any:
    return Weighed(), paddle.randn([6, 8]), classified, lambda parameters: Rounding(dtype, parameters)


def wide_weight() -> Any:
    return weighed("float32")


def stagnates() -> Any:
    return weighed("bfloat16")


class Words(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 5)

    def forward(self, words: Any) -> Any:
        return self.head(paddle.tanh(self.table(words)).mean(axis=1))


def words() -> Any:
    return Words(), labels(12, 7).reshape([4, 3]), classified, momentum_of


def epsilon_below_range() -> Any:
    return Words(), labels(12, 7).reshape([4, 3]), classified, lambda parameters: paddle.optimizer.Adam(
        1e-3, epsilon=1e-60, parameters=parameters
    )  # fmt: skip


def convolutions() -> Any:
    net = nn.Sequential(
        nn.Conv2D(3, 6, 3), nn.BatchNorm2D(6), nn.ReLU(), nn.MaxPool2D(2), nn.Conv2D(6, 8, 3), nn.Swish(),
        nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    return net, paddle.randn([4, 3, 12, 12]), classified, momentum_of


def encoder() -> Any:
    net = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu"), nn.Linear(16, 5))
    return net, paddle.randn([2, 5, 16]), lambda out: classified(out.reshape([-1, 5])), momentum_of


class Joined(nn.Layer):
    """Lists of tensors, tensors that are read twice, and writing in place."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 12), nn.Linear(10, 5)

    def forward(self, x: Any) -> Any:
        first, second, third = paddle.split(self.body(x), 3, axis=-1)
        y = paddle.concat([first * second, second + third, paddle.stack([first, third]).sum(axis=-1).T], axis=-1)
        y = F.relu_(y * 1.0)
        return self.head(y[:, :] + y.mean(axis=-1, keepdim=True))


def joined() -> Any:
    return Joined(), paddle.randn([6, 8]), classified, momentum_of


class Again(nn.Layer):
    """A block that is computed again in the backward pass, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.25))
        self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        from paddle.distributed.fleet.utils import recompute

        return self.head(recompute(self.block, self.first(x)))


def computed_again() -> Any:
    return Again(), paddle.randn([6, 8]), classified, momentum_of


