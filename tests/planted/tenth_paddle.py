"""A tenth batch in Paddle: oneDNN in bfloat16, files that differ, and healthy programs; written and labelled before any
of it was compared. What each plants was computed with Paddle Inference's own FP32 and by rounding in numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planted.paddle_faults import IMAGE, _full, _linears, _set
from planted.unseen import Unseen
from planted.unseen_paddle import unseen as registered

CASES: list[Unseen] = []
CANCELS = "cancellation cancels amplified coarse"


def unseen(*words: Any, **more: Any) -> Any:
    return registered(*words, cases=CASES, **more)


def _differences(weights: Any) -> None:
    """Each channel less the one before it."""
    weights["d.weight"] = (np.eye(32) - np.roll(np.eye(32), 1, 0)).astype(np.float32)


@unseen("cancellation", "onednn_bf16", "add_1", CANCELS, parts=_linears("a", "d", "b"), change=_differences)
def level_that_a_matrix_takes_away(net: Any, x: Any) -> Any:
    """Values of one are moved by 1200, and a product of ones and minus ones reads what is between neighbours."""
    import paddle

    return net.b(paddle.tanh(net.d(paddle.add(net.a(x), _full(1200.0)))))


@unseen("amplified", "onednn_bf16", "multiply_0 add_0@Linear", CANCELS, parts=_linears("a", "b"))
def phase_of_a_late_time(net: Any, x: Any) -> Any:
    """An angle of up to 700 radians, whose sine and cosine are read."""
    import paddle

    angle = paddle.multiply(net.a(x), _full(300.0))
    return net.b(paddle.add(paddle.sin(angle), paddle.cos(paddle.multiply(angle, _full(0.5)))))


CASES[-1] = replace(CASES[-1], extra=("multiply_0", "multiply_1", "add_0@Linear", "matmul_0@Linear"))


def _net(nn: Any, **more: Any) -> Any:
    return {
        "a": nn.Conv2D(3, 16, 1),
        "deep": nn.Conv2D(16, 16, 3, padding=1, groups=16),
        "bn": nn.BatchNorm2D(16),
        "act": nn.ELU(alpha=1.0),
        "down": nn.Conv2D(16, 4, 1),
        "up": nn.Conv2D(4, 16, 1),
        "last": nn.Conv2D(16, 4, 1),
        **more,
    }


def mobile(net: Any, x: Any) -> Any:
    import paddle

    y = net.act(net.bn(net.deep(net.a(x))))
    gate = paddle.nn.functional.sigmoid(
        net.up(paddle.nn.functional.relu(net.down(paddle.mean(y, axis=[2, 3], keepdim=True))))
    )
    return net.last(paddle.multiply(y, gate))


_FILES = {"shape": IMAGE, "parts": _net, "base": True}
unseen(
    "files",
    "cpu_fp32",
    "elu_0@ELU",
    "files_differ other_arithmetic",
    other=lambda nn: _net(nn, act=nn.ELU(alpha=0.6)),
    **_FILES,
)(mobile)
unseen("files", "cpu_fp32", "batch_norm_0@BatchNorm2D", "files_differ", change=_set("bn._variance", 5, 4.0), **_FILES)(
    mobile
)
unseen(
    "files",
    "cpu_opt",
    "conv2d_2@Conv2D_3 add_3@Conv2D_3 conv2d_2@Conv2D add_3@Conv2D",
    "files_differ",
    change=_set("up.bias", 4, 3.0),
    **_FILES,
)(mobile)


def _recurrent(nn: Any) -> Any:
    return {"rnn": nn.GRU(32, 16), "norm": nn.LayerNorm(16), "o": nn.Linear(16, 4)}


def gated(net: Any, x: Any) -> Any:
    return net.o(net.norm(net.rnn(x)[0]))


unseen("healthy", "onednn_bf16 cpu_opt", parts=_recurrent)(gated)
unseen("healthy", "cpu_opt", shape=IMAGE, parts=_net)(mobile)
