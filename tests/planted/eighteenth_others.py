"""An eighteenth batch of language models in folders, of Paddle alone and beside ONNX, and of training loops that are
recorded; written and labelled before any of it was compared.

    python tests/planted/eighteenth_others.py [WORD …]

measures the labels without the tool, as the seventeenth's does.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from planted import fifteenth_others, fourteenth_others
from planted.eleventh_torch import layer
from planted.fifteenth_others import Weights, _convs, _rows
from planted.fourteenth_others import Loop, _sgd
from planted.paddle_faults import IMAGE, TOKENS
from planted.seventeenth_others import _drawn, _loop, _net
from planted.twelfth.case import DIFFER, Thread

CASES: list[Thread] = []
LOOPS: list[Loop] = []
folder_of = functools.partial(fifteenth_others.folder_of, cases=CASES)
program = functools.partial(fifteenth_others.program, cases=CASES)
loop = functools.partial(fourteenth_others.loop, loops=LOOPS)
OTHER = f"{DIFFER} unfound"

# --- folders of transformers


def _lively(w: Weights) -> None:
    """Gains of norms as training leaves them, apart from 1."""
    drawn = np.random.default_rng(18)
    for name in sorted(one for one in w if "norm" in one and one.endswith("weight")):
        w[name] = drawn.uniform(0.4, 1.8, w[name].shape).astype(np.float32)


_FIRST = " ".join(f"model.layers.1.{norm}{part}" for norm in ("input_layernorm", "post_attention_layernorm")
                  for part in ("", "/mul", "/mul#1", "/mul#2"))  # fmt: skip


@folder_of("names of two norms", "language", _FIRST, "files_differ", model="mistral", both=_lively, extra=_FIRST,
           facts=[r"layers\.1\.(input|post_attention)_layernorm\.weight"])  # fmt: skip
def norms_of_a_layer_exchanged(w: Weights) -> None:
    """The second layer's two gains (in front of attention and in front of the MLP) changed places."""
    first, last = (f"model.layers.1.{one}_layernorm.weight" for one in ("input", "post_attention"))
    w[first], w[last] = w[last], w[first]


_KEY = _rows("0", "self_attn.k_proj")


@folder_of("heads averaged into one", "language", _KEY, "files_differ", model="qwen2",
           extra=_KEY, facts=[r"layers\.0\.self_attn\.k_proj\.weight"])  # fmt: skip
def keys_of_two_groups_averaged(w: Weights) -> None:
    """In the first layer both groups of keys are their mean, as a conversion to one group would leave them; the bias is
    as it was."""
    name = "model.layers.0.self_attn.k_proj.weight"
    mean = w[name].reshape(2, 16, -1).mean(0)
    w[name] = np.concatenate([mean, mean])


_DOWN = layer("transformer.h.0.mlp.c_proj")


@folder_of("a bias of a shard", "language", _DOWN, "files_differ", model="gpt2", extra=_DOWN,
           both=lambda w: w.update({"transformer.h.0.mlp.c_proj.bias":
                                    np.random.default_rng(8).normal(size=64).astype(np.float32)}),
           facts=[r"h\.0\.mlp\.c_proj\.bias"])  # fmt: skip
def bias_that_both_of_two_shards_add(w: Weights) -> None:
    """A layer that was split over two devices adds its bias on each: the first layer's bias is twice as large."""
    w["transformer.h.0.mlp.c_proj.bias"] *= 2


_VALUES = _rows("0", "self_attn.v_proj")


# Labelled healthy at first, as the logits are; the cache is an output, too, and a reader of it gets other numbers.
@folder_of("a scale between values and what follows", "language", _VALUES, "files_differ", model="llama",
           extra=_VALUES + " " + _rows("1", "self_attn.v_proj"), facts=[r"4 times"])  # fmt: skip
def values_four_times_as_large_before_a_quarter(w: Weights) -> None:
    """Values are four times as large and the projection behind attention a quarter: the logits are the same, and the
    values in the cache are not."""
    for n in range(2):
        w[f"model.layers.{n}.self_attn.v_proj.weight"] *= 4
        w[f"model.layers.{n}.self_attn.o_proj.weight"] /= 4


# --- Paddle


def picture_enlarged_by_its_centres(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.nn.functional.relu(net.a(x))
    y = paddle.nn.functional.interpolate(y, scale_factor=2, mode="bilinear", align_mode=0)
    return net.c(paddle.nn.functional.relu(net.b(y)))


_UP = "bilinear_interp_0 bilinear_interp bilinear_interp_v2_0"


@program("align_mode", "port", "cpu_fp32", _UP, DIFFER, parts=_convs, base=picture_enlarged_by_its_centres,
         shape=IMAGE, extra=_UP, facts=[r"align_mode"])  # fmt: skip
def picture_enlarged_by_its_corners_of_pixels(net: Any, x: Any) -> Any:
    """align_mode 1 (a pixel's corner) in place of 0 (its centre), which only Paddle has."""
    import paddle

    y = paddle.nn.functional.relu(net.a(x))
    y = paddle.nn.functional.interpolate(y, scale_factor=2, mode="bilinear", align_mode=1)
    return net.c(paddle.nn.functional.relu(net.b(y)))


def _three(nn: Any) -> dict[str, Any]:
    return {"a": nn.Linear(32, 32), "b": nn.Linear(32, 32), "c": nn.Linear(32, 8)}


def gated_by_swish(net: Any, x: Any) -> Any:
    import paddle

    y = net.a(x)
    return net.c(paddle.nn.functional.silu(net.b(y)) * y)


_SWISH = "swish_0 swish silu_0 silu sigmoid_0 sigmoid multiply_0 multiply scale_0 scale multiply_1"


@program("beta of a swish", "port", "cpu_opt", _SWISH, OTHER, parts=_three, base=gated_by_swish, shape=TOKENS,
         extra=_SWISH)  # fmt: skip
def gated_by_a_steeper_swish(net: Any, x: Any) -> Any:
    """y sigmoid(1.702 y) in place of y sigmoid(y), by every pass."""
    import paddle

    y = net.a(x)
    z = net.b(y)
    return net.c(z * paddle.nn.functional.sigmoid(z * 1.702) * y)


def weighed_channels(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.nn.functional.relu(net.a(x))
    gate = paddle.nn.functional.sigmoid(net.b(paddle.mean(y, [2, 3], keepdim=True)))
    return net.c(y * gate)


def _weighed(nn: Any) -> dict[str, Any]:
    return {"a": nn.Conv2D(3, 16, 3, padding=1), "b": nn.Conv2D(16, 16, 1), "c": nn.Conv2D(16, 4, 1)}


@program("squeeze and excitation", "healthy", "onednn_fp32", parts=_weighed, shape=IMAGE)
def channels_weighed_by_their_means(net: Any, x: Any) -> Any:
    """Channels weighed by a gate of their means, in oneDNN with every fusion."""
    return weighed_channels(net, x)


# --- loops that are recorded


@loop(r"[Ss]tep (2[1-3])", status=1)
def rate_below_nought(folder: Path) -> Any:
    """A schedule overshoots: from step 21 on the rate is -0.3, and every update goes uphill."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 0.3 if step < 21 else -0.3

    return _loop(folder, _sgd(0.3), _net(), _drawn(), each)


@loop(r"[Ss]tep (1[9-9]|2[0-1])", status=1)
def gradients_divided_by_the_devices_twice(folder: Path) -> Any:
    """From step 19 on every gradient is divided by 64 once more before the optimiser's step."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step >= 19:
            for one in net.parameters():
                one.grad.div_(64)

    return _loop(folder, _sgd(0.2), _net(), _drawn(), each)


@loop()
def rate_of_one_cycle_with_a_clip(folder: Path) -> Any:
    """A rate that rises for ten steps and falls for thirty, with momentum and gradients clipped to a norm of 1."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = 0.02 * (step + 1) if step < 10 else 0.2 * (40 - step) / 30

    return _loop(folder, _sgd(0.02, 0.9), _net(), _drawn(), each)


if __name__ == "__main__":
    fifteenth_others.main(CASES, LOOPS)
