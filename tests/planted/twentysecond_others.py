"""A twenty-second batch of language models in folders, of Paddle, and of training loops that are recorded; written and
labelled before any of it was compared (``python tests/planted/twentysecond_others.py`` measures without the tool)."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from planted import fifteenth_others, fourteenth_others
from planted.eleventh_torch import layer
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

# After the first run: groups_of_heads_in_another_order was labelled healthy; the cache is an output.

# --- folders of transformers

_ATTN = layer("transformer.h.0.attn.c_attn")


@folder_of("packed projection", "language", _ATTN, "files_differ", model="gpt2", extra=_ATTN,
           facts=[r"h\.0\.attn\.c_attn\.(weight|bias)"])  # fmt: skip
def keys_before_queries_in_a_packed_projection(w: Weights) -> None:
    """GPT-2's first layer: the packed projection's columns are keys, queries, values, weight and bias."""
    for part in ("weight", "bias"):
        name = f"transformer.h.0.attn.c_attn.{part}"
        q, k, v = np.split(w[name], 3, -1)
        w[name] = np.concatenate([k, q, v], -1)


_HALF = _rows("1", "self_attn.q_proj", "self_attn.k_proj")


@folder_of("partial rotary", "language", _HALF, "files_differ", model="stablelm", extra=_HALF,
           facts=[r"layers\.1\.self_attn\.[qk]_proj"])  # fmt: skip
def turned_part_of_a_head_put_last(w: Weights) -> None:
    """StableLM turns the first half of each head; in the second layer both halves of each head changed places, in
    queries and in keys: scores without places are the same, those with are not."""
    for part in "qk":
        name = f"model.layers.1.self_attn.{part}_proj.weight"
        size = w[name].shape
        w[name] = w[name].reshape(-1, 2, 8, size[1])[:, ::-1].reshape(size)


_GROUPS = _rows("0", "self_attn.k_proj", "self_attn.v_proj")


@folder_of("order of heads", "language", _GROUPS, "files_differ", model="llama",
           extra=_GROUPS + " " + _rows("1", "self_attn.k_proj", "self_attn.v_proj"))  # fmt: skip
def groups_of_heads_in_another_order(w: Weights) -> None:
    """In both layers the two groups of heads are exchanged: queries', keys' and values' rows and the output
    projection's columns: the logits are the same, the cache, an output too, has its heads in the other order."""
    for n in range(2):
        for part in "qkv":
            name = f"model.layers.{n}.self_attn.{part}_proj.weight"
            w[name] = np.concatenate(np.split(w[name], 2)[::-1])
        name = f"model.layers.{n}.self_attn.o_proj.weight"
        w[name] = np.concatenate(np.split(w[name], 2, 1)[::-1], 1)


_NORM = "model.norm " + " ".join(f"model.norm/{one}" for one in ("mul", "mul#1", "mul#2", "type_as", "to", "_to_copy"))


@folder_of("norm before the head", "language", _NORM, "files_differ", model="mistral", extra=_NORM,
           facts=[r"model\.norm\.weight"])  # fmt: skip
def gains_before_the_head_in_steps(w: Weights) -> None:
    """The last norm's gains rise from 0.5 to 1.5 in place of 1 throughout."""
    w["model.norm.weight"] *= np.linspace(0.5, 1.5, 64).astype(np.float32)


# --- Paddle


def _convs(nn: Any) -> dict[str, Any]:
    return {"a": nn.Conv2D(3, 8, 3, padding=1), "c": nn.Conv2D(8, 4, 1)}


def picture_padded_by_its_edge(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.pad(net.a(x), [2, 2, 2, 2], mode="replicate"))


_PAD = " ".join(f"pad3d{end} pad{end}" for end in ("", "_0", "_1"))


@program("pad", "port", "cpu_fp32", _PAD, OTHER, parts=_convs, base=picture_padded_by_its_edge, shape=IMAGE, extra=_PAD,
         facts=[r"mode|reflect"])  # fmt: skip
def picture_padded_by_its_mirror(net: Any, x: Any) -> Any:
    """A border of two is the mirror's in place of the edge's."""
    import paddle

    return net.c(paddle.nn.functional.pad(net.a(x), [2, 2, 2, 2], mode="reflect"))


def _linears(nn: Any) -> dict[str, Any]:
    return {"a": nn.Linear(32, 32), "n": nn.LayerNorm(32), "c": nn.Linear(32, 8)}


def words_rolled_by_one(net: Any, x: Any) -> Any:
    return net.c(net.a(x).roll(1, 1))


_ROLL = "roll roll_0 roll_1"


@program("roll", "port", "cpu_fp32", _ROLL, OTHER, parts=_linears, base=words_rolled_by_one, shape=TOKENS, extra=_ROLL,
         facts=[r"shifts?\b"])  # fmt: skip
def words_rolled_back_by_one(net: Any, x: Any) -> Any:
    """Words are moved on by -1 in place of 1."""
    return net.c(net.a(x).roll(-1, 1))


@program("attention in bfloat16", "healthy", "onednn_bf16", parts=_linears, shape=TOKENS)
def words_normed_and_mixed(net: Any, x: Any) -> Any:
    """A norm, shares of words, a layer, in oneDNN's bfloat16."""
    import paddle

    h = net.n(net.a(x))
    share = paddle.nn.functional.softmax(paddle.matmul(h, h, transpose_y=True) * 0.1, axis=-1)
    return net.c(paddle.matmul(share, h))


@program("level in bfloat16", "healthy", "onednn_bf16", parts=_linears, shape=TOKENS)
def small_change_of_a_large_level(net: Any, x: Any) -> Any:
    """A layer plus 300, less 300 behind, where bfloat16 steps by 2: oneDNN keeps these operators in float32."""
    import paddle

    level = paddle.full([1], 300.0)
    return net.c(((net.a(x) + level) * 1.5 - level * 1.5).tanh())


# --- loops that are recorded


@loop(r"[Ss]tep (2[1-3])", status=1)
def rate_of_a_hundred_times_by_a_schedule(folder: Path) -> Any:
    """From step 22 on a schedule multiplies SGD's rate by 100 where it should divide."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 5.0 if step >= 22 else 0.05

    return _loop(folder, _sgd(0.05), _net(), _drawn(), each)


@loop(r"[Ss]tep (1[7-9])", status=1)
def gradients_of_the_other_sign_in_one_layer(folder: Path) -> Any:
    """From step 18 on the first layer's gradients have the other sign, and ten times their size."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step >= 18:
            net[0].weight.grad.mul_(-10)

    return _loop(folder, _sgd(0.1), _net(), _drawn(), each)


@loop(r"[Ss]tep (2[3-6])", status=1)
def layer_drawn_anew_in_between(folder: Path) -> Any:
    """At step 25 the last layer is drawn anew, forty times as large, as of a checkpoint that was loaded in part."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step == 24:
            with torch.no_grad():
                net[3].weight.normal_(0, 8, generator=torch.Generator().manual_seed(3))

    return _loop(folder, _sgd(0.1), _net(), _drawn(), each)


@loop()
def layer_that_thaws_at_a_half(folder: Path) -> Any:
    """The first layer is frozen until step 20 and is trained from then on, as planned."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step < 20:
            net[0].weight.grad, net[0].bias.grad = None, None

    return _loop(folder, _sgd(0.05), _net(), _drawn(), each)


@loop()
def adamw_that_warms_up_and_falls_by_a_cosine(folder: Path) -> Any:
    """AdamW whose rate rises for eight steps and then falls by a half cosine to a hundredth."""
    import math

    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * ((step + 1) / 8 if step < 8 else 0.01 + 0.99 * (1 + math.cos(
                math.pi * (step - 8) / 32)) / 2)  # fmt: skip

    return _loop(folder, lambda one: torch.optim.AdamW(one.parameters(), lr=3e-3), _net(), _drawn(), each)


if __name__ == "__main__":
    fifteenth_others.main(CASES, LOOPS)
