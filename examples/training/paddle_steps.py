"""A step of a Paddle nn.Layer whose GELU has a backward of its own: in ``wrong`` it rounds the gradient to float16.

    python -m precision_debug --model_file paddle_steps.py:wrong --baseline_model paddle_steps.py:right \
        --run_mode dygraph_fp32 --baseline dygraph_fp32 --step backward
"""

import math

import paddle
from paddle import nn


class Gelu(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x, held):
        ctx.held = held
        ctx.save_for_backward(x)
        return nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensor()
        slope = 0.5 * (1 + paddle.erf(x / math.sqrt(2))) + x * paddle.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return (gradient * slope).astype(ctx.held).astype(x.dtype)


class Act(nn.Layer):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, x):
        return Gelu.apply(x, self.held)


def step(held):
    layer = nn.Sequential(nn.Linear(8, 16), Act(held), nn.Linear(16, 5))
    labels = paddle.arange(6) % 5
    return (
        layer,
        paddle.randn([6, 8]),
        lambda out: nn.functional.cross_entropy(out, labels) * 1e-6,  # as behind a small weight of this loss
        lambda parameters: paddle.optimizer.AdamW(1e-3, parameters=parameters),
    )


def right():
    return step("float32")


def wrong():
    return step("float16")
