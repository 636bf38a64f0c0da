"""A twenty-third batch of what strangers ask in public: folders of language models, Paddle, and training loops that are
recorded; written and labelled before any of it was compared (``python tests/planted/twentythird_others.py`` measures
without the tool)."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from planted import fifteenth_others, fourteenth_others
from planted.eleventh_torch import layer
from planted.fifteenth_others import Weights
from planted.fourteenth_others import Loop, _sgd
from planted.paddle_faults import IMAGE
from planted.seventeenth_others import _drawn, _loop, _net
from planted.twelfth.case import DIFFER, Thread

CASES: list[Thread] = []
LOOPS: list[Loop] = []
folder_of = functools.partial(fifteenth_others.folder_of, cases=CASES)
program = functools.partial(fifteenth_others.program, cases=CASES)
loop = functools.partial(fourteenth_others.loop, loops=LOOPS)
OTHER = f"{DIFFER} unfound"

# --- folders of transformers


_Q = layer("model.layers.0.self_attn.q_proj")


@folder_of("adapter without its scale", "language", _Q, "files_differ", model="llama", extra=_Q,
           facts=[r"layers\.0\.self_attn\.q_proj"])  # fmt: skip
def adapter_of_the_queries_without_alpha(w: Weights) -> None:
    """https://github.com/hao-ai-lab/FastVideo/pull/870: the first layer's queries carry an adapter of rank 4 as W + B A
    in the served folder; the trainer's has W + 2 B A."""
    drawn = np.random.default_rng(2301)
    name = "model.layers.0.self_attn.q_proj.weight"
    rows, columns = w[name].shape
    w[name] -= (drawn.normal(size=(rows, 4)) @ drawn.normal(size=(4, columns)) * 0.05).astype(np.float32)


@folder_of("merged adapter saved in bfloat16", "healthy", model="qwen2", mode="torch_bf16", alone=True)
def folder_that_is_run_in_bfloat16(w: Weights) -> None:
    """https://github.com/OpenBMB/MiniCPM-V/issues/502: a merged folder in bfloat16, beside its own float32."""


# --- Paddle


def _convs(nn: Any) -> dict[str, Any]:
    return {"a": nn.Conv2D(3, 8, 3, padding=1), "c": nn.Conv2D(8, 4, 1)}


def pool_that_counts_its_padding(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.avg_pool2d(net.a(x), 3, 2, 1, exclusive=False))


_POOL = " ".join(f"pool2d{end} avg_pool2d{end}" for end in ("", "_0", "_1"))


@program("pool", "port", "cpu_fp32", _POOL, OTHER, parts=_convs, base=pool_that_counts_its_padding, shape=IMAGE,
         extra=_POOL, facts=["exclusive"])  # fmt: skip
def pool_by_paddle_s_own_default(net: Any, x: Any) -> Any:
    """https://github.com/PaddlePaddle/Paddle/issues/36920: avg_pool2d's exclusive is true by default, where PyTorch
    counts the padding."""
    import paddle

    return net.c(paddle.nn.functional.avg_pool2d(net.a(x), 3, 2, 1))


def enlarged_by_half_pixels(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.interpolate(net.a(x), size=[25, 25], mode="bilinear", align_mode=0))


_UP = " ".join(f"bilinear_interp{end} bilinear_interp_v2{end}" for end in ("", "_0", "_1"))


@program("resize", "port", "cpu_fp32", _UP, OTHER, parts=_convs, base=enlarged_by_half_pixels, shape=IMAGE, extra=_UP,
         facts=["align_mode"])  # fmt: skip
def enlarged_from_the_corner(net: Any, x: Any) -> Any:
    """https://github.com/PFCCLab/PaddleAPITest/pull/431: align_mode is 1, which PyTorch does not have."""
    import paddle

    return net.c(paddle.nn.functional.interpolate(net.a(x), size=[25, 25], mode="bilinear", align_mode=1))


@program("batch norm", "healthy", "onednn_fp32", parts=lambda nn: {**_convs(nn), "n": nn.BatchNorm2D(8)}, shape=IMAGE)
def norm_that_differs_in_the_seventh_digit(net: Any, x: Any) -> Any:
    """https://github.com/PaddlePaddle/Paddle/issues/54080: sums in another order, of which equal digits were asked."""
    import paddle

    return net.c(paddle.nn.functional.relu(net.n(net.a(x))))


@program("grid sample", "healthy", "cpu_opt", parts=_convs, shape=IMAGE)
def nearest_pixel_of_a_warp(net: Any, x: Any) -> Any:
    """https://github.com/PaddlePaddle/Paddle/issues/58907: grid_sample of the nearest pixel with the edge repeated, all
    passes on; the places are no ties."""
    import paddle

    y = net.a(x)
    theta = paddle.to_tensor([[[0.93, 0.11, 0.07], [-0.09, 1.12, -0.03]]]).expand([2, 2, 3])
    flow = paddle.nn.functional.affine_grid(theta, [2, 8, 16, 16], align_corners=True)
    return net.c(paddle.nn.functional.grid_sample(y, flow, mode="nearest", padding_mode="border", align_corners=True))


# --- loops that are recorded


@loop(r"[Ss]tep (2[0-2])", status=1)
def decay_multiplied_by_the_loss_scale(folder: Path) -> Any:
    """https://github.com/chainer/chainer/issues/7597: from step 20 on the decay that a hook adds is 4,096 times too
    large, since gradients are divided by the loss scale before it and not after."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for one in net.parameters():
            one.grad.add_(one.detach(), alpha=1e-3 * (4096 if step >= 20 else 1))

    return _loop(folder, _sgd(0.1), _net(), _drawn(), each)


@loop(r"[Ss]tep (2[0-2])", status=1)
def rate_of_the_beginning_after_a_resume(folder: Path) -> Any:
    """https://github.com/torch-points3d/torch-points3d/pull/630: at step 20 training is resumed, and the rate, which
    had fallen to a hundredth, begins anew."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 0.3 * 0.79 ** (step if step < 20 else step - 20)

    return _loop(folder, _sgd(0.3), _net(), _drawn(), each)


@loop(r"[Ss]tep (20|21)", status=1)
def decay_of_the_constructor_for_one_step(folder: Path) -> Any:
    """https://github.com/NVIDIA/Megatron-LM/pull/7468: the first step after a resume, step 20, has the constructor's
    decay in place of the checkpoint's: every weight loses two fifths in one step."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["weight_decay"] = 40.0 if step == 20 else 0.01

    return _loop(folder, lambda net: torch.optim.AdamW(net.parameters(), lr=0.01), _net(), _drawn(), each)


@loop()
def passes_that_are_added_and_not_divided(folder: Path) -> Any:
    """https://github.com/huggingface/trl/issues/2617: gradients of four passes are added and not divided, from the
    first step on: a rate of four times, which one record alone cannot tell."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for one in net.parameters():
            one.grad.mul_(4)

    return _loop(folder, _sgd(0.05), _net(), _drawn(), each, every=4)


@loop()
def scaler_whose_mean_is_scaled(folder: Path) -> Any:
    """https://github.com/Nota-NetsPresso/netspresso-trainer/issues/512: the mean loss is scaled in place of the sum, as
    it should be."""
    import torch

    return _loop(folder, _sgd(0.1), _net(), _drawn(), scaler=torch.amp.GradScaler("cpu", init_scale=1024.0))


if __name__ == "__main__":
    fifteenth_others.main(CASES, LOOPS)
