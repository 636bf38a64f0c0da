"""A twenty-fourth batch: Paddle, and training loops that are recorded; written and labelled before any of it was
compared (``python tests/planted/twentyfourth_others.py`` measures without the tool)."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted import fifteenth_others, fourteenth_others
from planted.fourteenth_others import Loop
from planted.seventeenth_others import _drawn, _loop, _net
from planted.twelfth.case import DIFFER, Thread

CASES: list[Thread] = []
LOOPS: list[Loop] = []
program = functools.partial(fifteenth_others.program, cases=CASES)
loop = functools.partial(fourteenth_others.loop, loops=LOOPS)
OTHER = f"{DIFFER} unfound"

# --- Paddle


def _layers(nn: Any, epsilon: float = 1e-5) -> dict[str, Any]:
    return {"a": nn.Linear(32, 32), "n": nn.LayerNorm(32, epsilon=epsilon), "b": nn.Linear(32, 8)}


def small_numbers_normed(net: Any, x: Any) -> Any:
    import paddle

    return net.b(paddle.nn.functional.gelu(net.n(net.a(x) * 0.02)))


_LN = "layer_norm_0 layer_norm_0@LayerNorm layer_norm"


@program("norm", "port", "cpu_fp32", _LN, OTHER, parts=functools.partial(_layers, epsilon=1e-3), base_parts=_layers,
         base=small_numbers_normed, extra=_LN, facts=["epsilon"])  # fmt: skip
def epsilon_of_a_thousandth_under_small_numbers(net: Any, x: Any) -> Any:
    """A norm of numbers of 0.02 whose epsilon is 1e-3 in place of 1e-5."""
    return small_numbers_normed(net, x)


@program("norm", "healthy", "onednn_bf16", parts=_layers)
def norm_and_gate_in_bfloat16(net: Any, x: Any) -> Any:
    """Two matrices, a norm and a gate in oneDNN's bfloat16: a percent, as it costs."""
    return small_numbers_normed(net, x)


# --- loops that are recorded


@loop(r"[Ss]tep (2[0-2])", status=1)
def epsilon_of_adam_of_one_after_a_resume(folder: Path) -> Any:
    """From step 20 on Adam's epsilon is 1 in place of 1e-8: updates fall to a hundredth and less."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["eps"] = 1.0 if step >= 20 else 1e-8

    return _loop(folder, lambda net: torch.optim.Adam(net.parameters(), lr=0.01), _net(), _drawn(), each)


@loop(r"[Ss]tep (2[0-2])", status=1)
def pictures_that_are_empty_from_a_step_on(folder: Path) -> Any:
    """From step 20 on the loader gives noughts (a file that is missing), with labels as ever: the first matrix'
    gradient is exactly 0."""
    import torch

    plain = _drawn()

    def batch(step: int, drawn: Any) -> Any:
        x, y = plain(step, drawn)
        return (torch.zeros_like(x) if step >= 20 else x), y

    return _loop(folder, lambda net: torch.optim.SGD(net.parameters(), lr=0.1), _net(), batch)


@loop()
def weights_that_look_ahead(folder: Path) -> Any:
    """Lookahead from the first step: each fifth step weights go back half-way to slow ones, as they should."""
    import torch

    net = _net()
    slow = [one.detach().clone() for one in net.parameters()]

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step % 5 == 4:
            with torch.no_grad():
                for kept, one in zip(slow, net.parameters(), strict=True):
                    kept.add_(one - kept, alpha=0.5)
                    one.copy_(kept)

    return _loop(folder, lambda net: torch.optim.SGD(net.parameters(), lr=0.1), net, _drawn(), each)


@loop()
def root_mean_square_optimiser_with_clipped_values(folder: Path) -> Any:
    """RMSprop, centred, with momentum, and gradients clipped by value at 0.5, all from the first step."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.5)

    return _loop(folder, lambda net: torch.optim.RMSprop(net.parameters(), lr=0.002, centered=True, momentum=0.5),
                 _net(), _drawn(64), each)  # fmt: skip


if __name__ == "__main__":
    fifteenth_others.main(CASES, LOOPS)
