"""Paddle layers with planted faults for ``kept_fresh``, whose legacy programs are committed in tests/data/paddle.

They were made with paddlepaddle 2.6.2 by ``python tests/planted/kept_fresh_paddle.py tests/data/paddle``: Paddle 3
writes PIR programs, of which oneDNN's passes keep no operator types.
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import paddle
from paddle import nn


class ScaledAway(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        x = paddle.nn.functional.gelu(self.a(x))
        x = paddle.scale(paddle.scale(x, 1.0, 2000.0), 1.0, -2000.0)
        return self.c(paddle.nn.functional.sigmoid(self.b(x)))


class NormOfFarNumbers(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 8)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        x = self.norm(paddle.scale(paddle.nn.functional.gelu(self.a(x)), 1.0, 800.0))
        return self.c(paddle.nn.functional.sigmoid(self.b(x)))


class ProductsOfFarNumbers(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 8)
        self.one = self.create_parameter([16])

    def forward(self, x: Any) -> Any:
        x = paddle.nn.functional.sigmoid(self.a(x))
        x = paddle.multiply(paddle.scale(x, 1.0, 1200.0), self.one)
        return self.c(paddle.nn.functional.sigmoid(self.b(paddle.subtract(x, paddle.scale(self.one, 1200.0)))))


class SoftmaxScaledAway(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        x = paddle.nn.functional.softmax(self.a(x))
        x = paddle.scale(paddle.scale(x, 16.0, 700.0), 1.0, -700.0)
        return self.c(paddle.nn.functional.relu(self.b(x)))


LAYERS = {
    "scaled_away": ScaledAway,
    "products_of_far_numbers": ProductsOfFarNumbers,
    "norm_of_far_numbers": NormOfFarNumbers,
    "softmax_scaled_away": SoftmaxScaledAway,
}

if __name__ == "__main__":
    for name, layer in LAYERS.items():
        with paddle.utils.unique_name.guard(), tempfile.TemporaryDirectory() as home:
            net = layer()
            net.eval()
            spec = paddle.static.InputSpec([None, 16], "float32", name="x")
            paddle.jit.save(paddle.jit.to_static(net, input_spec=[spec]), str(Path(home, name)))
            program = Path(home, f"{name}.pdmodel").read_bytes()
        Path(sys.argv[1], f"{name}.pdmodel.z").write_bytes(zlib.compress(program, 9))
