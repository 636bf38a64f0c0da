"""A twentieth batch of language models in folders, of Paddle, and of training loops that are recorded; written and
labelled before any of it was compared."""

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

_UP = _rows("1", "mlp.up_proj")
_K = _rows("0", "self_attn.k_proj")


@folder_of("scale of a checkpoint", "language", _UP, "files_differ", model="llama", extra=_UP,
           facts=[r"layers\.1\.mlp\.up_proj\.weight"])  # fmt: skip
def up_projection_dequantised_with_half_its_scale(w: Weights) -> None:
    """One shard of the second layer's up projection (its first half of rows) was dequantised with half its scale."""
    name = "model.layers.1.mlp.up_proj.weight"
    w[name][: len(w[name]) // 2] *= 0.5


@folder_of("biases of qkv", "language", _K, "files_differ", model="qwen2", extra=_K,
           facts=[r"layers\.0\.self_attn\.k_proj\.bias"])  # fmt: skip
def bias_of_the_keys_not_permuted(w: Weights) -> None:
    """The rows of the keys' weight are right; the bias is in the order of interleaved pairs."""
    name = "model.layers.0.self_attn.k_proj.bias"
    w[name] = w[name].reshape(-1, 16).reshape(-1, 2, 8).swapaxes(1, 2).reshape(-1).copy()
    if not np.any(w[name]):
        raise ValueError("the bias is all 0")


_EMBED = "model.embed_tokens model.embed_tokens/embedding"


@folder_of("rows of new words", "language", _EMBED, "files_differ", model="llama", extra=_EMBED,
           facts=[r"embed_tokens\.weight"])  # fmt: skip
def table_of_words_moved_by_one(w: Weights) -> None:
    """The table of words is moved by one row: a special token was put in front by the converter."""
    name = "model.embed_tokens.weight"
    w[name] = np.roll(w[name], 1, 0)


@folder_of("order of units", "healthy", model="llama")
def units_of_a_gated_layer_in_another_order(w: Weights) -> None:
    """The hidden units of the second layer are sorted by size, in all three matrices: nothing is wrong."""
    front = "model.layers.1.mlp."
    order = np.argsort(np.abs(w[f"{front}gate_proj.weight"]).sum(1))
    for name in ("gate_proj", "up_proj"):
        w[f"{front}{name}.weight"] = w[f"{front}{name}.weight"][order]
    w[f"{front}down_proj.weight"] = w[f"{front}down_proj.weight"][:, order]


# --- Paddle


def _convs(nn: Any) -> dict[str, Any]:
    return {"a": nn.Conv2D(3, 8, 3, padding=1), "c": nn.Conv2D(8, 4, 1)}


def picture_enlarged_by_its_middles(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.interpolate(net.a(x), scale_factor=2, mode="bilinear", align_mode=0))


_LARGER = "bilinear_interp_0 bilinear_interp bilinear_interp_v2_0 bilinear_interp_v2"


@program("align_mode", "port", "cpu_fp32", _LARGER, OTHER, parts=_convs, base=picture_enlarged_by_its_middles,
         shape=IMAGE, extra=_LARGER, facts=["align_mode"])  # fmt: skip
def picture_enlarged_by_its_corner_pixels(net: Any, x: Any) -> Any:
    """align_mode 1 in place of 0: places are counted from corners."""
    import paddle

    return net.c(paddle.nn.functional.interpolate(net.a(x), scale_factor=2, mode="bilinear", align_mode=1))


def _linears(nn: Any) -> dict[str, Any]:
    return {"a": nn.Linear(32, 32), "c": nn.Linear(32, 8)}


def gate_of_a_product(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.silu(net.a(x)))


@program("silu by hand", "healthy", "cpu_fp32", parts=_linears, base=gate_of_a_product, shape=TOKENS)
def gate_of_a_product_by_hand(net: Any, x: Any) -> Any:
    """x sigmoid(x) beside silu."""
    import paddle

    y = net.a(x)
    return net.c(y * paddle.nn.functional.sigmoid(y))


# --- loops that are recorded


@loop(r"[Ss]tep (1[5-7])", status=1)
def input_that_is_not_a_number(folder: Path) -> Any:
    """A batch of step 15 holds one NaN: loss, gradients and, one step later, parameters are NaN."""

    def batch(step: int, drawn: Any) -> Any:
        x, y = _drawn()(step, drawn)
        if step == 15:
            x[3, 2] = float("nan")
        return x, y

    return _loop(folder, _sgd(0.1), _net(), batch)


@loop(r"[Ss]tep (1[7-9]|20)", status=1)
def weights_set_back_to_their_beginning(folder: Path) -> Any:
    """At step 18 the first checkpoint is loaded again, the optimiser goes on."""
    import copy

    kept: dict[str, Any] = {}

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step == 0:
            kept.update(copy.deepcopy(net.state_dict()))
        if step == 18:
            net.load_state_dict(kept)

    return _loop(folder, _sgd(0.3), _net(), _drawn(), each)


@loop(r"[Ss]tep (2[0-3])", status=1)
def gradients_scaled_and_not_scaled_back(folder: Path) -> Any:
    """From step 20 on gradients are 1024 times as large, as of a loss scale that nobody takes off."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step >= 20:
            for one in net.parameters():
                one.grad.mul_(1024.0)

    return _loop(folder, _sgd(0.05), _net(), _drawn(), each)


@loop()
def gradients_clipped_and_a_rate_that_warms_up(folder: Path) -> Any:
    """Gradients clipped to a norm of 1, a rate that grows for ten steps and falls as a cosine."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = 0.1 * min((step + 1) / 10, 0.5 + 0.5 * float(np.cos(np.pi * step / 40)))

    return _loop(folder, _sgd(), _net(), _drawn(), each)


if __name__ == "__main__":
    fifteenth_others.main(CASES, LOOPS)
