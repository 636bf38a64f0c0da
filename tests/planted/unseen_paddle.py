"""Unseen faults and clean models in Paddle: exported programs, and layers in dynamic graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from planted.paddle_faults import IMAGE, TOKENS, _feeds, _full, _linears, _set, _written
from planted.unseen import Unseen

CASES: list[Unseen] = []


def unseen(
    kind: str, modes: str, who: str = "", why: str = "", *, shape: Any = TOKENS, parts: Any = lambda nn: {},
    change: Any = None, status: int | None = None, base: bool = False, other: Any = None, cases: list[Unseen] = CASES,
    scale: float = 1.0,
) -> Callable[[Any], Any]:  # fmt: skip
    """Register a forward of (net, x). base: the baseline is the same without ``change`` and with the first parts."""

    def register(forward: Any) -> Any:
        for mode in modes.split():

            def make(folder: Path) -> tuple[Path, Path | None, Any]:
                first = _written(folder, "base", parts, forward, shape, None) if base else None
                model = _written(folder, forward.__name__, other or parts, forward, shape, change)
                return model, first, _feeds(shape, scale)

            cases.append(
                Unseen(name=forward.__name__, kind=kind, mode=mode, make=make, who=tuple(who.split()),
                       why=tuple(why.split()), status=int(bool(who)) if status is None else status,
                       baseline=mode if base else "")
            )  # fmt: skip
        return forward

    return register


def _net(nn: Any, **more: Any) -> Any:
    return {
        "a": nn.Conv2D(3, 8, 3, padding=1), "bn": nn.BatchNorm2D(8), "b": nn.Conv2D(8, 8, 3, padding=1, groups=8),
        "gn": nn.GroupNorm(2, 8), "up": nn.Upsample(scale_factor=2, mode="bilinear"), "c": nn.Conv2D(8, 4, 1), **more,
    }  # fmt: skip


def segment(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.nn.functional.hardswish(net.bn(net.a(x)))
    return net.c(net.up(net.gn(net.b(y))))


_FILES = {"shape": IMAGE, "parts": _net, "base": True}
unseen("files", "cpu_fp32", "batch_norm_0@BatchNorm2D", "files_differ", change=_set("bn._mean", 3, 0.7), **_FILES)(
    segment
)
unseen(
    "files",
    "cpu_fp32",
    "depthwise_conv2d_0@Conv2D_1 conv2d_1@Conv2D add_1@Conv2D",
    "files_differ",
    change=_set("b.weight", (2, 0, 1, 1), 4.0),
    **_FILES,
)(segment)
unseen(
    "files",
    "cpu_fp32",
    "group_norm_0@GroupNorm",
    "files_differ",
    other=lambda nn: _net(nn, gn=nn.GroupNorm(2, 8, epsilon=0.1)),
    **_FILES,
)(segment)
unseen(
    "files",
    "cpu_opt",
    "bilinear_interp_0@Upsample",
    "files_differ",
    other=lambda nn: _net(nn, up=nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)),
    **_FILES,
)(segment)
unseen("clean", "cpu_opt", shape=IMAGE, parts=_net)(segment)


@unseen("clean", "cpu_opt onednn_bf16 onednn_fp32", parts=_linears("q", "k", "v", "o"))
def attention(net: Any, x: Any) -> Any:
    import paddle

    score = paddle.matmul(net.q(x), net.k(x), transpose_y=True) * 0.17
    return net.o(paddle.matmul(paddle.nn.functional.softmax(score), net.v(x)))


@unseen("clean", "onednn_bf16 cpu_opt", parts=lambda nn: {"rnn": nn.LSTM(32, 16), "o": nn.Linear(16, 4)})
def recurrent(net: Any, x: Any) -> Any:
    return net.o(net.rnn(x)[0])


@unseen("clean", "onednn_bf16", parts=_linears("a", "b"))  # the sum is fused into the product before it, and is FP32
def far_and_back_by_a_norm(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.add(net.a(x), _full(700.0))
    return net.b(y - paddle.mean(y, axis=-1, keepdim=True))


@unseen("amplified", "onednn_bf16", "multiply_0 add_0@Linear", "amplified cancellation", parts=_linears("a", "b"))
def cosine_of_a_large_angle(net: Any, x: Any) -> Any:
    import paddle

    return net.b(paddle.cos(paddle.multiply(net.a(x), _full(150.0))))


@unseen("empty", "onednn_bf16", parts=_linears("a", "b"), scale=0.0, status=1)  # of zeros alone BF16 leaves no trace
def zeros(net: Any, x: Any) -> Any:
    import paddle

    return net.b(paddle.nn.functional.gelu(net.a(x)))
