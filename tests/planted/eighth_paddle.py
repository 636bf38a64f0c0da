"""An eighth batch in Paddle: oneDNN in bfloat16, and files that differ; written and labelled before it was run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planted.paddle_faults import IMAGE, _full, _linears
from planted.unseen import Unseen
from planted.unseen_paddle import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Any:
    return registered(*words, cases=CASES, **more)


@unseen("cancellation", "onednn_bf16", "multiply_0 multiply_1", "cancellation cancels amplified", parts=_linears(
    "a", "b"))  # fmt: skip
def turn_between_two_vectors(net: Any, x: Any) -> Any:
    """A cross product of vectors that are all but parallel: two products, whose difference is a hundredth of them."""
    import paddle

    u, v = net.a(x), paddle.add(net.a(x), paddle.multiply(paddle.tanh(net.b(x)), _full(0.01)))
    return paddle.subtract(paddle.multiply(u, paddle.roll(v, 1, -1)), paddle.multiply(paddle.roll(u, 1, -1), v)) * 50


# v itself is rounded, too: multiply_0 is the hundredth's product, add_3 is v, which the label had as add_2
CASES[-1] = replace(CASES[-1], who=("multiply_0", "multiply_1", "multiply_2", "add_3", "add_1@Linear", "add_0@Linear"),
                    extra=("multiply_0", "multiply_1", "multiply_2", "add_0@Linear", "add_1@Linear", "add_3",
                           "roll_0", "roll_1"))  # fmt: skip


@unseen("healthy", "onednn_bf16", parts=lambda nn: {"e": nn.Linear(32, 64), **_linears("a", "b")(nn)})
def shares_that_are_picked_by_a_product(net: Any, x: Any) -> Any:
    """One-hot rows from an argmax, by a product; and a mask of -10000 that leaves one place."""
    import paddle

    hot = paddle.nn.functional.one_hot(paddle.argmax(x, axis=-1), 32)
    mask = (1.0 - hot) * -10000.0
    return net.b(paddle.nn.functional.softmax(net.a(x) + mask, axis=-1) + hot)


def _net(nn: Any, **more: Any) -> Any:
    return {
        "a": nn.Conv2D(3, 8, 3, padding=1, padding_mode="reflect"), "gn": nn.GroupNorm(2, 8, epsilon=1e-3),
        "act": nn.Hardswish(), "shuffle": nn.PixelShuffle(2), "last": nn.Conv2D(2, 4, 3, dilation=2), **more,
    }  # fmt: skip


def shuffled(net: Any, x: Any) -> Any:
    return net.last(net.shuffle(net.act(net.gn(net.a(x)))))


_FILES = {"shape": IMAGE, "parts": _net, "base": True}
unseen("files", "cpu_fp32", "group_norm_0@GroupNorm", "files_differ",
       other=lambda nn: _net(nn, gn=nn.GroupNorm(2, 8, epsilon=0.1)), **_FILES)(shuffled)  # fmt: skip
unseen("files", "cpu_fp32", "pad3d_0@Conv2D pad_0@Conv2D pad3d_0", "files_differ other_arithmetic",
       other=lambda nn: _net(nn, a=nn.Conv2D(3, 8, 3, padding=1, padding_mode="replicate")), **_FILES)(
    shuffled
)  # fmt: skip
unseen("healthy", "cpu_opt", shape=IMAGE, parts=_net)(shuffled)
