"""Threads about Paddle, its conversion to ONNX, and LiteRT."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from litert_files import DATA, images

from planted.onnx_faults import Array, Graph
from planted.onnx_further import k
from planted.paddle_faults import TOKENS, _feeds, _linears, _written
from planted.twelfth.case import DIFFER, Thread, labelled

CASES: list[Thread] = []


def _segment(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.nn.functional.relu(net.a(x))
    y = paddle.nn.functional.interpolate(y, scale_factor=4, mode="bilinear", align_corners=True)
    return net.b(y)


def _parts(nn: Any) -> dict[str, Any]:
    return {"a": nn.Conv2D(3, 8, 3, padding=1), "b": nn.Conv2D(8, 2, 1)}


def mask_whose_corners_are_not_aligned(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
    """Paddle enlarges with its corners aligned, the converted file by half pixels: the masks are shifted, most at the
    border."""
    weights: dict[str, Array] = {}
    base = _written(folder, "base", _parts, _segment, (2, 3, 8, 8), weights.update)
    g = Graph(seed=1)
    x = g.input("x", _feeds((2, 3, 8, 8))["x"])
    x = g.op("Conv", [x, k(g, "a.w", weights["a.weight"]), k(g, "a.b", weights["a.bias"])], "a", pads=[1, 1, 1, 1])
    x = g.op("Relu", [x], "r")
    x = g.op("Resize", [x, "", k(g, "sc", [1, 1, 4, 4])], "up", mode="linear",
             coordinate_transformation_mode="half_pixel")  # fmt: skip
    y = g.op("Conv", [x, k(g, "b.w", weights["b.weight"]), k(g, "b.b", weights["b.bias"])], "y")
    return g.save(folder / "mask_whose_corners_are_not_aligned.onnx", [y]), base, g.feeds


CASES.append(
    labelled(
        mask_whose_corners_are_not_aligned,
        "PaddlePaddle/PaddleSeg#3682",
        "files",
        "ort_fp32",
        "bilinear_interp_0",
        DIFFER,
        extra="y",
        make=mask_whose_corners_are_not_aligned,
        baseline="cpu_fp32",
        mends="align_corners",
    )
)


def _energy(net: Any, x: Any) -> Any:
    import paddle

    each = net.b(paddle.tanh(net.a(x))) + -187.6
    return (each + 187.0) * 5.0


def energy_of_an_atom(folder: Path) -> tuple[Path, None, Mapping[str, Array]]:
    """Each atom's energy is held with its element's bias of -187.6, beside which bfloat16 knows every whole number. It
    looks lost, and is not: oneDNN computes those sums in float32, and the result is off by 0.26 %."""
    parts = lambda nn: {"a": nn.Linear(32, 32), "b": nn.Linear(32, 8)}  # noqa: E731
    return _written(folder, "energy_of_an_atom", parts, _energy, TOKENS, None), None, _feeds(TOKENS)


CASES.append(
    labelled(energy_of_an_atom, "PaddlePaddle/Paddle#47357", "healthy", "onednn_bf16", "", "", make=energy_of_an_atom)
)


def _attention(net: Any, x: Any) -> Any:
    import paddle

    q, key, v = net.a(x), net.b(x), net.c(x)
    share = paddle.nn.functional.softmax(paddle.matmul(q, key, transpose_y=True) * 0.18, axis=-1)
    return net.n(paddle.add(x, paddle.matmul(share, v)))


def attention_with_onednn(folder: Path) -> tuple[Path, None, Mapping[str, Array]]:
    """oneDNN's fused attention in float32: off by 1e-6."""
    parts = lambda nn: {**_linears("a", "b", "c")(nn), "n": nn.LayerNorm(32)}  # noqa: E731
    return _written(folder, "attention_with_onednn", parts, _attention, TOKENS, None), None, _feeds(TOKENS)


CASES.append(
    labelled(
        attention_with_onednn, "PaddlePaddle/Paddle#35574", "healthy", "onednn_fp32", "", "", make=attention_with_onednn
    )
)


def digits_in_int8(folder: Path) -> tuple[Path, None, Mapping[str, Array]]:
    """A well quantised classifier, whose raw integers people read as if they were its scores."""
    target = folder / "digits_in_int8.tflite"
    target.write_bytes((DATA / "digits_int8.tflite").read_bytes())
    return target, None, {"image": np.ascontiguousarray(images(8))}


CASES.append(
    labelled(digits_in_int8, "tensorflow/tensorflow#53278", "healthy", "tflite_opt", "", "", make=digits_in_int8)
)
