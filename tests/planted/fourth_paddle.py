"""A fourth batch in Paddle; written and labelled before any of it was run."""

from __future__ import annotations

from typing import Any

from planted.paddle_faults import IMAGE, _full, _linears, _set
from planted.unseen import Unseen
from planted.unseen_paddle import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Any:
    return registered(*words, cases=CASES, **more)


def _names(count: int) -> list[str]:
    return [f"l{n}" for n in range(count)]


@unseen("healthy", "onednn_bf16 cpu_opt", parts=_linears(*_names(12)))
def deep_perceptron(net: Any, x: Any) -> Any:
    import paddle

    for name in _names(12):
        x = paddle.add(x, paddle.tanh(getattr(net, name)(x)))
    return x


def _convolutions(nn: Any) -> Any:
    return {"stem": nn.Conv2D(3, 8, 3, padding=1), "last": nn.Conv2D(8, 4, 1),
            **{f"c{n}": nn.Conv2D(8, 8, 3, padding=1) for n in range(10)}}  # fmt: skip


@unseen("healthy", "onednn_bf16 onednn_fp32", shape=IMAGE, parts=_convolutions)
def residual_net(net: Any, x: Any) -> Any:
    import paddle

    x = net.stem(x)
    for n in range(0, 10, 2):
        h = getattr(net, f"c{n + 1}")(paddle.nn.functional.relu(getattr(net, f"c{n}")(x)))
        x = paddle.nn.functional.relu(paddle.add(x, h))
    return net.last(x)


def _attention(nn: Any) -> Any:
    return {**_linears(*(f"{one}{n}" for n in range(2) for one in "qkvo"))(nn), "n0": nn.LayerNorm(32),
            "n1": nn.LayerNorm(32)}  # fmt: skip


@unseen("healthy", "onednn_bf16", parts=_attention)
def encoder(net: Any, x: Any) -> Any:
    import paddle

    for n in range(2):
        q, k, v = (getattr(net, f"{one}{n}")(x) for one in "qkv")
        score = paddle.matmul(q, k, transpose_y=True) * 0.17
        mixed = paddle.matmul(paddle.nn.functional.softmax(score), v)
        x = getattr(net, f"n{n}")(paddle.add(x, getattr(net, f"o{n}")(mixed)))
    return x


_FILES = {"parts": _linears(*_names(12)), "base": True}
unseen("files", "cpu_fp32", "matmul_6@Linear_6 matmul_6@Linear add_12@Linear matmul_6", "files_differ",
       change=_set("l6.weight", (3,), 0.3), **_FILES)(deep_perceptron)  # fmt: skip


@unseen("cancellation", "onednn_bf16", "multiply_0 add_8", "cancellation amplified coarse",
        parts=lambda nn: {**_linears(*_names(5))(nn), "norm": nn.LayerNorm(32)})  # fmt: skip
def large_mean_before_a_norm(net: Any, x: Any) -> Any:
    import paddle

    for name in _names(4):
        x = paddle.add(x, paddle.tanh(getattr(net, name)(x)))
    far = paddle.multiply(paddle.add(x, _full(60.0)), _full(1.5))
    return net.l4(net.norm(far))
