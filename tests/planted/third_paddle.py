"""A third batch in Paddle: exported programs, and layers in dynamic graph; written before any of it was run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planted.paddle_faults import IMAGE, _full, _linears, _set
from planted.unseen import Unseen
from planted.unseen_paddle import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Any:
    return registered(*words, cases=CASES, **more)


def _decoder(nn: Any, **more: Any) -> Any:
    return {
        "stem": nn.Conv2D(3, 8, 3, padding=1), "norm": nn.InstanceNorm2D(8), "act": nn.PReLU(8),
        "up": nn.Conv2DTranspose(8, 4, 4, stride=2, padding=1), "pool": nn.AvgPool2D(2), "last": nn.Conv2D(4, 2, 1),
        **more,
    }  # fmt: skip


def decoder(net: Any, x: Any) -> Any:
    return net.last(net.pool(net.up(net.act(net.norm(net.stem(x))))))


_FILES = {"shape": IMAGE, "parts": _decoder, "base": True}
unseen("files", "cpu_fp32", "conv2d_transpose_0@Conv2DTranspose add_1@Conv2DTranspose", "files_differ",
       change=_set("up.weight", (slice(None), 2), 0.1), **_FILES)(decoder)  # fmt: skip
unseen("files", "cpu_fp32", "prelu_0@PReLU", "files_differ", change=_set("act._weight", (3,), 0.9), **_FILES)(decoder)
unseen("files", "cpu_fp32", "instance_norm_0@InstanceNorm2D", "files_differ",
       change=_set("norm.scale", (5,), 3.0), **_FILES)(decoder)  # fmt: skip
unseen("files", "cpu_opt", "pool2d_0@AvgPool2D pool2d_0@MaxPool2D", "files_differ other_arithmetic",
       other=lambda nn: _decoder(nn, pool=nn.MaxPool2D(2)), **_FILES)(decoder)  # fmt: skip
unseen("clean", "cpu_opt onednn_fp32", shape=IMAGE, parts=_decoder)(decoder)
# oneDNN reads the slopes of every second channel as 0 in bfloat16
unseen("engine", "onednn_bf16", "prelu_0@PReLU", "coarse other_arithmetic", shape=IMAGE, parts=_decoder)(decoder)


@unseen("clean", "onednn_bf16 cpu_opt", parts=lambda nn: {
    "rnn": nn.GRU(32, 16, direction="bidirect"), "o": nn.Linear(32, 4)})  # fmt: skip
def both_directions(net: Any, x: Any) -> Any:
    import paddle

    return paddle.nn.functional.log_softmax(net.o(net.rnn(x)[0]))


@unseen("amplified", "onednn_bf16", "multiply_0 matmul_0 matmul_0@Linear add_0@Linear matmul_2", "amplified coarse",
        parts=_linears("q", "k", "v"))  # fmt: skip
def softmax_of_hundreds(net: Any, x: Any) -> Any:
    import paddle

    q = paddle.multiply(net.q(x), _full(0.3))
    score = paddle.matmul(q, paddle.add(net.k(x), _full(90.0)), transpose_y=True)
    return paddle.matmul(paddle.nn.functional.softmax(score), net.v(x))


CASES[-1] = CASES[-1].__class__(
    **{**CASES[-1].__dict__, "who": ("multiply_0", "matmul_0", "matmul_2", "add_0@Linear", "add_2", "add_1@Linear"),
       "why": ("amplified", "cancellation", "coarse")}
)  # fmt: skip

SOURCE = """
import paddle
from paddle import nn


class Far(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.b((self.a(x) + 2.0**24) - 2.0**24)


class Near(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2D(3, 8, 3), nn.GroupNorm(2, 8), nn.Conv2D(8, 2, 1)

    def forward(self, x):
        return self.out(nn.functional.softplus(self.norm(self.conv(x))))


def far():
    paddle.seed(3)
    return Far(), paddle.randn([8, 32])


def near():
    paddle.seed(3)
    return Near(), paddle.randn([2, 3, 8, 8])


def other_norm():
    model, x = near()
    model.norm.weight.set_value(paddle.linspace(0.4, 1.6, 8))
    return model, x
"""


def dygraph(
    kind: str, name: str, mode: str, baseline: str, who: str = "", why: str = "", *, base: str = "", **more: Any
) -> None:
    """A factory of SOURCE in dynamic graph. base: the baseline's, where it is another."""

    def make(folder: Path) -> tuple[str, str | None, None]:
        file = folder / "layers_model.py"
        file.write_text(SOURCE)
        return f"{file}:{name}", f"{file}:{base}" if base else None, None

    CASES.append(Unseen(name=f"dygraph_{name}", kind=kind, mode=mode, make=make, who=tuple(who.split()),
                        why=tuple(why.split()), status=int(bool(who)), baseline=baseline, **more))  # fmt: skip


# the sum loses what the difference behind it lays bare
dygraph(
    "cancellation", "far", "dygraph_fp32", "dygraph_fp64", "add subtract",
    "cancellation amplified coarse long_reduction",
)  # fmt: skip
dygraph("clean", "near", "dygraph_fp32", "dygraph_fp64")
dygraph("files", "other_norm", "dygraph_fp32", "dygraph_fp32", "norm/group_norm", "files_differ", base="near")
