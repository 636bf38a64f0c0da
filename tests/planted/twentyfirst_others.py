"""A twenty-first batch of language models in folders, of Paddle, and of training loops that are recorded; written and
labelled before any of it was compared (``python tests/planted/twentyfirst_others.py`` measures without the tool)."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from planted import fifteenth_others, fourteenth_others
from planted.fifteenth_others import Weights, _rows
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

_DOWN = _rows("0", "mlp.down_proj")


@folder_of("shards of a tensor", "language", _DOWN, "files_differ", model="llama", extra=_DOWN,
           facts=[r"layers\.0\.mlp\.down_proj\.weight"])  # fmt: skip
def down_projection_whose_shards_are_interleaved(w: Weights) -> None:
    """Two shards of the first layer's down projection, cut along its inputs, were woven column by column."""
    name = "model.layers.0.mlp.down_proj.weight"
    w[name] = np.stack(np.split(w[name], 2, 1), -1).reshape(w[name].shape)


@folder_of("signs of units", "healthy", model="llama")
def signs_of_values_turned_in_both_matrices(w: Weights) -> None:
    """The up projection and the down projection of the second layer have the other sign: nothing is wrong."""
    for part in ("up_proj", "down_proj"):
        w[f"model.layers.1.mlp.{part}.weight"] *= -1


# --- Paddle


def _convs(nn: Any) -> dict[str, Any]:
    return {"a": nn.Conv2D(3, 8, 3, padding=1), "p": nn.PReLU(8), "c": nn.Conv2D(8, 4, 1)}


def channels_shuffled_by_two(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.channel_shuffle(net.a(x), 2) * paddle.linspace(1, 2, 16))


_SHUFFLE = " ".join(f"{one}{end}" for one in ("channel_shuffle", "shuffle_channel") for end in ("", "_0", "_1"))


@program("channel_shuffle", "port", "cpu_fp32", _SHUFFLE, OTHER, parts=_convs, base=channels_shuffled_by_two,
         shape=IMAGE, extra=_SHUFFLE, facts=["groups"])  # fmt: skip
def channels_shuffled_by_four(net: Any, x: Any) -> Any:
    """Channels are shuffled by four groups in place of two."""
    import paddle

    return net.c(paddle.nn.functional.channel_shuffle(net.a(x), 4) * paddle.linspace(1, 2, 16))


def slopes_of_a_prelu(net: Any, x: Any) -> Any:
    return net.c(net.p(net.a(x)))


def _slopes(weights: Weights) -> None:
    weights["p._weight"] = np.linspace(0.9, 0.1, 8).astype(np.float32)


_PRELU = "prelu prelu_0 prelu_0@PReLU prelu@PReLU prelu_0@PReLU_0"


@program("PReLU", "port", "cpu_fp32", _PRELU, "files_differ", parts=_convs, base=slopes_of_a_prelu, shape=IMAGE,
         change=_slopes, extra=_PRELU)  # fmt: skip
def slopes_of_another_prelu(net: Any, x: Any) -> Any:
    """The slopes are 0.9 to 0.1 in place of 0.25 throughout."""
    return slopes_of_a_prelu(net, x)


def _linears(nn: Any) -> dict[str, Any]:
    return {"a": nn.Linear(32, 32), "c": nn.Linear(32, 8)}


def running_sum_of_words(net: Any, x: Any) -> Any:
    return net.c(net.a(x).cumsum(1) * 0.2)


_SUM = "cumsum cumsum_0 cumsum_1"


@program("cumsum", "port", "cpu_fp32", _SUM, OTHER, parts=_linears, base=running_sum_of_words, shape=TOKENS,
         extra=_SUM, facts=["axis"])  # fmt: skip
def running_sum_of_channels(net: Any, x: Any) -> Any:
    """A running sum along the channels in place of the words."""
    return net.c(net.a(x).cumsum(2) * 0.2)


def cosine_of_two_layers(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.normalize(net.a(x), axis=-1))


@program("normalize by hand", "healthy", "cpu_opt", parts=_linears, base=cosine_of_two_layers, shape=TOKENS)
def cosine_of_two_layers_by_hand(net: Any, x: Any) -> Any:
    """x / sqrt(sum x^2), with all passes, beside normalize without."""
    import paddle

    y = net.a(x)
    return net.c(y / paddle.sqrt((y * y).sum(-1, keepdim=True)))


# --- loops that are recorded


@loop(r"[Ss]tep (19|2\d)", status=1)
def decay_of_the_other_sign(folder: Path) -> Any:
    """From step 20 on SGD's decay is -2 in place of 0.01: with a rate of 0.1 every weight grows by a fifth a step."""

    def make(net: Any) -> Any:
        import torch

        return torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.01)

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["weight_decay"] = -2.0 if step >= 20 else 0.01

    return _loop(folder, make, _net(), _drawn(), each)


@loop(r"[Ss]tep (1[89]|2[0-2])", status=1)
def gain_of_a_norm_set_to_nought(folder: Path) -> Any:
    """At step 20 the gain of the layer norm becomes 0, as of a loaded checkpoint without it: nothing comes through, and
    the layer in front of it gets no gradient in the next step."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step == 20:
            with torch.no_grad():
                net[2].weight.zero_()

    return _loop(folder, _sgd(0.1), _net(), _drawn(), each)


@loop(r"[Ss]tep (1[5-9])", status=1)
def gradients_of_which_one_is_endless(folder: Path) -> Any:
    """In step 16 one element of the last layer's gradient is Inf, and the step is taken: its weight is -Inf then."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step == 16:
            net[3].weight.grad[1, 2] = float("inf")

    return _loop(folder, _sgd(0.1), _net(), _drawn(), each)


@loop()
def units_dropped_by_chance(folder: Path) -> Any:
    """Half of the hidden units are dropped by chance in every step, by Adam."""
    import torch
    from torch import nn

    torch.manual_seed(17)
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Dropout(0.5), nn.LayerNorm(64), nn.Linear(64, 4))
    return _loop(folder, lambda one: torch.optim.Adam(one.parameters(), lr=0.01), net, _drawn())


if __name__ == "__main__":
    fifteenth_others.main(CASES, LOOPS)
