"""A sixth batch in Paddle: oneDNN in bfloat16 and files that differ, and healthy programs that look dangerous; written
and labelled before any of it was run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planted.paddle_faults import IMAGE, _full, _linears
from planted.unseen import Unseen
from planted.unseen_paddle import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Any:
    return registered(*words, cases=CASES, **more)


@unseen("cancellation", "onednn_bf16", "add_1 multiply_0 multiply_1", "cancellation cancels amplified",
        parts=_linears("a", "b"))  # fmt: skip
def residual_that_is_taken_away(net: Any, x: Any) -> Any:
    """A stream of a thousand, a branch of one, and the stream again."""
    import paddle

    stream = paddle.multiply(x, _full(900.0))
    both = paddle.add(stream, paddle.tanh(net.a(x)))
    return net.b(paddle.add(both, paddle.multiply(x, _full(-900.0))))


CASES[-1] = replace(CASES[-1], who=("multiply_0", "multiply_1", "add_1", "add_2"),
                    extra=("multiply_0", "multiply_1", "add_1", "add_2"))  # fmt: skip


@unseen("healthy", "onednn_bf16", parts=_linears("a", "b"))  # all of it stays in FP32
def variance_by_two_products(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.add(paddle.tanh(net.a(x)), _full(30.0))
    mean = paddle.mean(y, axis=-1, keepdim=True)
    var = paddle.mean(paddle.multiply(y, y), axis=-1, keepdim=True) - paddle.multiply(mean, mean)
    return net.b((y - mean) / paddle.sqrt(paddle.abs(var) + 1e-2))


@unseen("healthy", "onednn_bf16", parts=_linears("q", "k", "v"))  # 1.4 times what rounding costs, and nobody's
def scores_of_forty(net: Any, x: Any) -> Any:
    """A softmax of scores that are all but a choice: each is off by a tenth."""
    import paddle

    score = paddle.matmul(net.q(x), net.k(x), transpose_y=True) * 6.0
    return paddle.matmul(paddle.nn.functional.softmax(score), net.v(x))


def _net(nn: Any, **more: Any) -> Any:
    return {
        "a": nn.Conv2D(3, 8, 3, padding=1), "bn": nn.BatchNorm2D(8, epsilon=1e-3), "act": nn.GELU(),
        "pool": nn.AvgPool2D(3, 2, 1, exclusive=True), "up": nn.Upsample(scale_factor=2, mode="bilinear"),
        "last": nn.Conv2D(8, 4, 1), **more,
    }  # fmt: skip


def picture(net: Any, x: Any) -> Any:
    return net.last(net.up(net.pool(net.act(net.bn(net.a(x))))))


_FILES = {"shape": IMAGE, "parts": _net, "base": True}
unseen("files", "cpu_fp32", "pool2d_0@AvgPool2D", "files_differ",
       other=lambda nn: _net(nn, pool=nn.AvgPool2D(3, 2, 1, exclusive=False)), **_FILES)(picture)  # fmt: skip
unseen("files", "cpu_fp32", "gelu_0@GELU", "files_differ", other=lambda nn: _net(nn, act=nn.GELU(approximate=True)),
       **_FILES)(picture)  # fmt: skip
unseen("files", "cpu_fp32", "bilinear_interp_0@Upsample", "files_differ",
       other=lambda nn: _net(nn, up=nn.Upsample(scale_factor=2, mode="bilinear", align_mode=1)), **_FILES)(
    picture
)  # fmt: skip
unseen("files", "cpu_opt", "batch_norm_0@BatchNorm2D conv2d_0@Conv2D add_0@Conv2D", "files_differ",
       other=lambda nn: _net(nn, bn=nn.BatchNorm2D(8, epsilon=0.3)), **_FILES)(picture)  # fmt: skip
# Paddle 3.3 refuses a resize in oneDNN, of a PIR program
unseen("healthy", "cpu_opt", shape=IMAGE, parts=_net)(picture)


@unseen("healthy", "onednn_bf16", parts=_linears("q", "k", "v"))
def mask_of_a_billion(net: Any, x: Any) -> Any:
    """-1e9 is a number in bfloat16."""
    import paddle

    mask = paddle.full([8, 8], -1e9, "float32").triu(1)
    score = paddle.add(paddle.matmul(net.q(x), net.k(x), transpose_y=True) * 0.17, mask)
    return paddle.matmul(paddle.nn.functional.softmax(score), net.v(x))


@unseen("healthy", "onednn_bf16 cpu_opt", parts=lambda nn: {"d": nn.Dropout(0.5), **_linears("a", "b", "c")(nn)})
def dropout_of_a_deployed_model(net: Any, x: Any) -> Any:
    import paddle

    return net.c(net.d(paddle.nn.functional.relu(net.b(net.d(paddle.nn.functional.relu(net.a(x)))))))
