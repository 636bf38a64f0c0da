"""A nineteenth batch of language models in folders, of Paddle, and of training loops that are recorded; written and
labelled before any of it was compared.

    python tests/planted/nineteenth_others.py [WORD …]

measures the labels without the tool, as the eighteenth's does.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from planted import fifteenth_others, fourteenth_others
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

_OUT, _VALUE = _rows("0", "self_attn.o_proj"), _rows("1", "self_attn.v_proj")


@folder_of("heads behind attention", "language", _OUT, "files_differ", model="mistral", extra=_OUT,
           facts=[r"layers\.0\.self_attn\.o_proj\.weight"])  # fmt: skip
def projection_that_reads_the_next_head(w: Weights) -> None:
    """In the first layer what reads the heads has its columns moved by one head of 16."""
    name = "model.layers.0.self_attn.o_proj.weight"
    w[name] = np.roll(w[name], 16, 1)


@folder_of("biases of qkv", "language", _VALUE, "files_differ", model="qwen2", extra=_VALUE,
           facts=[r"layers\.1\.self_attn\.v_proj\.bias"])  # fmt: skip
def bias_of_the_values_left_at_nought(w: Weights) -> None:
    """The bias of the second layer's values is 0, as of a loader that knows none."""
    w["model.layers.1.self_attn.v_proj.bias"][:] = 0


_LAST = "transformer.ln_f transformer.ln_f/layer_norm transformer.ln_f/native_layer_norm"


@folder_of("names of a norm", "language", _LAST, "files_differ", model="gpt2", extra=_LAST, facts=[r"ln_f\.bias"])
def last_norm_with_the_bias_of_the_first(w: Weights) -> None:
    """The last norm's bias is that of the first layer's first norm."""
    w["transformer.ln_f.bias"] = w["transformer.h.0.ln_1.bias"].copy()


@folder_of("order of heads", "healthy", model="llama")
def heads_of_each_group_in_another_order(w: Weights) -> None:
    """Both queries of each group of keys changed places, and so did the columns that read them: nothing is wrong."""
    order = np.concatenate([np.arange(16) + 16 * head for head in (1, 0, 3, 2)])
    for n in range(2):
        front = f"model.layers.{n}.self_attn."
        w[f"{front}q_proj.weight"] = w[f"{front}q_proj.weight"][order]
        w[f"{front}o_proj.weight"] = w[f"{front}o_proj.weight"][:, order]


@folder_of("bfloat16 of a folder", "healthy", model="llama", mode="torch_bf16", alone=True)
def folder_served_in_bfloat16(w: Weights) -> None:
    """One folder in bfloat16 beside its own float32: rounding."""


# --- Paddle


def halved_by_a_border(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.relu(net.small(paddle.nn.functional.relu(net.a(x)))))


def _half(**how: Any) -> Any:
    return lambda nn: {"a": nn.Conv2D(3, 8, 3, padding=1), "small": nn.Conv2D(8, 8, 3, stride=2, **how),
                       "c": nn.Conv2D(8, 4, 1)}  # fmt: skip


_HALF = "conv2d_1 conv2d_1@Conv2D_1 conv2d_1@Conv2D conv2d_4 add_1@Conv2D_1 add_1@Conv2D add_1 add_4"


@program("SAME", "port", "cpu_fp32", _HALF, OTHER, parts=_half(padding="SAME"), base_parts=_half(padding=1),
         base=halved_by_a_border, shape=IMAGE, extra=_HALF + " relu_1 relu_1@Conv2D_1", facts=[r"padding|SAME|pad"])
def halved_as_tensorflow_does(net: Any, x: Any) -> Any:
    """A stride of 2 with padding SAME (none in front, 1 behind) in place of 1 on both sides."""
    return halved_by_a_border(net, x)


def _three(nn: Any) -> dict[str, Any]:
    return {"a": nn.Linear(32, 32), "b": nn.Linear(32, 32), "c": nn.Linear(32, 8)}


def normed_word_by_word(net: Any, x: Any) -> Any:
    import paddle

    y = net.a(x) * paddle.arange(1, 9, dtype="float32").unsqueeze(-1)
    return net.c(paddle.nn.functional.layer_norm(y, [32]))


_NORM = "layer_norm_0 layer_norm"


@program("begin_norm_axis", "port", "cpu_fp32", _NORM, OTHER, parts=_three, base=normed_word_by_word, shape=TOKENS,
         extra=_NORM, facts=[r"begin_norm_axis|axis"])  # fmt: skip
def normed_over_all_words(net: Any, x: Any) -> Any:
    """A layer norm over words and channels in place of channels, of words that grow."""
    import paddle

    y = net.a(x) * paddle.arange(1, 9, dtype="float32").unsqueeze(-1)
    return net.c(paddle.nn.functional.layer_norm(y, [8, 32]))


def shares_of_the_channels(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.softmax(net.a(x), axis=-1) * net.b(x))


@program("axis of a softmax", "port", "cpu_opt", "softmax_0 softmax", OTHER, parts=_three, base=shares_of_the_channels,
         shape=TOKENS, extra="softmax_0 softmax", facts=[r"axis"])  # fmt: skip
def shares_of_the_places(net: Any, x: Any) -> Any:
    """A softmax over axis 1 in place of the last, by every pass."""
    import paddle

    return net.c(paddle.nn.functional.softmax(net.a(x), axis=1) * net.b(x))


@program("softmax by hand", "healthy", "cpu_fp32", parts=_three, base=shares_of_the_channels, shape=TOKENS)
def shares_by_exponentials(net: Any, x: Any) -> Any:
    """The softmax written out: less the largest, exponentials, divided by their sum."""
    import paddle

    y = net.a(x)
    y = paddle.exp(y - paddle.max(y, axis=-1, keepdim=True))
    return net.c(y / paddle.sum(y, axis=-1, keepdim=True) * net.b(x))


@program("convolutions of bfloat16", "healthy", "onednn_bf16", parts=_convs, shape=IMAGE)
def pictures_in_bfloat16(net: Any, x: Any) -> Any:
    """Three convolutions, a gate and a pool: rounding."""
    import paddle

    y = paddle.nn.functional.hardswish(net.a(x))
    return net.c(paddle.nn.functional.avg_pool2d(paddle.nn.functional.relu(net.b(y)), 2))


# --- loops that are recorded


@loop(r"[Ss]tep (2[0-9])", status=1)
def momentum_above_one(folder: Path) -> Any:
    """From step 20 on momentum is 1.2 in place of 0.9: velocities grow by a fifth in each step."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["momentum"] = 0.9 if step < 20 else 1.2

    return _loop(folder, _sgd(0.05, 0.9), _net(), _drawn(), each)


@loop(r"[Ss]tep (1[7-9])", status=1)
def weights_pruned_in_between(folder: Path) -> Any:
    """At step 18 the smaller half of each matrix is set to 0 before the step: parameters are others than the last step
    left."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step == 18:
            with torch.no_grad():
                for one in net.parameters():
                    if one.ndim > 1:
                        one[one.abs() < one.abs().median()] = 0

    return _loop(folder, _sgd(0.2), _net(), _drawn(), each)


@loop()
def rate_that_falls_in_a_line(folder: Path) -> Any:
    """A rate that falls in a line to a tenth, with a decay of 1e-3 inside AdamW."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 0.01 * (1 - 0.9 * step / 40)

    return _loop(folder, lambda net: torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=1e-3), _net(), _drawn(),
        each)


if __name__ == "__main__":
    fifteenth_others.main(CASES, LOOPS)
