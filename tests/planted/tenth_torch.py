"""A tenth batch in PyTorch: autocast, whole models in half, a compiled one, training steps, a folder of dumped modules,
two modules that should be one, and healthy ones; written and labelled before any of it was compared. What each plants
was computed in float64 beside the type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from planted.torch_faults import Net, image, linear, tokens
from planted.unseen import Unseen
from planted.unseen_torch import changed
from planted.unseen_torch import unseen as registered

CASES: list[Unseen] = []
CANCELS = "cancellation cancels amplified coarse"


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, **more)


def _again(**more: Any) -> None:
    """Other labels or options of the case that was registered last, in each of its modes."""
    name = CASES[-1].name
    CASES[:] = [replace(one, **more) if one.name == name else one for one in CASES]


# --- whole models in half


@unseen(
    "underflow",
    "torch_fp16",
    "mul mul#1 mul#2 sum sum#1 sum#2 sqrt div",
    "underflow weight_underflow born epsilon_lost",
)
def cosine_by_hand_of_faint_vectors() -> Any:
    """Vectors of 3e-5 are multiplied before they are divided by their lengths: all three products are 0."""

    def body(m: Any, x: Any) -> Any:
        a, b = m.a(x) * 5e-5, m.b(x) * 5e-5
        dot = (a * b).sum(-1)
        return m.head(dot / ((a * a).sum(-1).sqrt() * (b * b).sum(-1).sqrt() + 1e-9))

    torch.manual_seed(31)
    return Net(body, a=linear(32, 32), b=linear(32, 32), head=linear(8, 4)), tokens()


_again(
    extra=("mul", "mul#1", "mul#2", "mul#3", "mul#4", "mul#5", "sum", "sum#1", "sum#2", "sqrt", "sqrt#1", "add", "div"),
    who=("mul#2", "mul#3", "mul#4", "sum", "sum#1", "sum#2", "sqrt", "sqrt#1", "mul#5", "add", "div"),
    fix=False,
)


@unseen("overflow", "torch_fp16", "pow", "overflow", most=2)
def odd_power_of_a_distorted_ray() -> Any:
    """A lens's fifth power of a radius of up to 14, whose factor is a millionth."""

    def body(m: Any, x: Any) -> Any:
        r = torch.tanh(m.a(x)) * 14
        return m.head(r + r.pow(5) * 1e-5)

    torch.manual_seed(32)
    return Net(body, a=linear(32, 16), head=linear(16, 4)), tokens()


_again(extra=("pow", "mul#1"))


@unseen(
    "coarse", "torch_fp16", "add", "coarse flips cancellation amplified", extra=("add", "_to_copy", "embedding"), most=3
)
def index_of_a_grid_in_half() -> Any:
    """Row times 70 plus column, in half, as the index of a table: beyond 2048 odd places are lost."""

    def body(m: Any, row: Any, column: Any) -> Any:
        place = row * 70 + column
        return m.head(m.table[place.long().clamp(0, 4899)])

    torch.manual_seed(33)
    table = torch.randn(4900, 8)
    return Net(body, table=table, head=linear(8, 4)), (
        torch.randint(35, 70, (4, 6)).float(),
        torch.randint(0, 35, (4, 6)).float() * 2 + 1,
    )


_again(extra=("add", "mul", "_to_copy", "clamp", "index"), who=("add", "mul"))


@unseen("cancellation", "torch_bf16", "cumsum", CANCELS, extra=("cumsum", "slice", "slice#1", "sub"))
def moving_average_by_a_running_sum() -> Any:
    def body(m: Any, x: Any) -> Any:
        total = x.cumsum(-1)
        return torch.tanh(((total[:, 16:] - total[:, :-16]) / 16 - 0.5) * 6)

    torch.manual_seed(34)
    return Net(body), torch.rand(2, 1024)


# --- autocast


@unseen("overflow", "torch_autocast_fp16", "q/addmm q/linear k/addmm k/linear bmm matmul", "overflow range_inside")
def scores_of_unscaled_heads() -> Any:
    """q k^T of features of 100 over 64 channels is some 1e5 before it is divided: autocast multiplies in half."""

    def body(m: Any, x: Any) -> Any:
        score = torch.bmm(m.q(x), m.k(x).transpose(1, 2)) * 1e-5
        return m.o(score.softmax(-1) @ m.v(x))

    torch.manual_seed(35)
    return Net(body, q=linear(64, 64, 200.0), k=linear(64, 64, 200.0), v=linear(64, 64), o=linear(64, 4)), tokens(64)


_again(who=("bmm",), extra=("bmm",))


@unseen("cancellation", "torch_autocast_bf16", "far/addmm far/linear", CANCELS)
def level_that_a_linear_layer_adds() -> Any:
    """A layer's bias is 400; the mean is taken away behind it, and bfloat16 knows every second number there."""

    def body(m: Any, x: Any) -> Any:
        y = m.far(x)
        return m.head((y - y.mean(1, keepdim=True)).tanh())

    torch.manual_seed(36)
    far = linear(32, 32)
    with torch.no_grad():
        far.bias.add_(400)
    return Net(body, far=far, head=linear(32, 4)), tokens()


_again(extra=("far/addmm", "far/linear", "sub", "far"), most=3)


@unseen("healthy", "torch_autocast_bf16 torch_bf16 torch_compile")
def mobile_block() -> Any:
    """Depthwise, squeezed and excited, with a hard swish, behind a batch norm."""

    def body(m: Any, x: Any) -> Any:
        y = F.hardswish(m.bn(m.deep(m.wide(x))))
        gate = F.hardsigmoid(m.up(F.relu(m.down(y.mean((2, 3), keepdim=True)))))
        return m.head((m.last(y * gate)).mean((2, 3)))

    torch.manual_seed(37)
    return Net(
        body,
        wide=nn.Conv2d(3, 16, 1),
        deep=nn.Conv2d(16, 16, 3, padding=1, groups=16),
        bn=nn.BatchNorm2d(16),
        down=nn.Conv2d(16, 4, 1),
        up=nn.Conv2d(4, 16, 1),
        last=nn.Conv2d(16, 8, 1),
        head=linear(8, 4),
    ).eval(), image()


@unseen("healthy", "torch_fp16")
def masked_place_that_overflows() -> Any:
    """exp(20) in places that where() leaves out, and a square root of a negative number there."""

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        far = torch.where(m.keep, y, (y + 20).exp())
        return m.head(torch.where(m.keep, far, torch.zeros_like(far)))

    torch.manual_seed(38)
    return Net(body, a=linear(32, 16), keep=torch.arange(16) < 12, head=linear(16, 4)), tokens()


# --- two modules that should be one


def sequence(hidden: float = 3.0, turn: float = 10000.0, leak: float = 0.01) -> Any:
    """A GRU between a rotation of positions and a head."""
    torch.manual_seed(39)

    def body(m: Any, x: Any) -> Any:
        angle = torch.outer(torch.arange(10.0), turn ** -(torch.arange(4.0) / 4))
        a, b = m.q(x).chunk(2, -1)
        x = torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)
        h = m.rnn(x)[0] * hidden
        return m.head(F.leaky_relu(h, leak))

    return Net(body, q=linear(8, 8), rnn=nn.GRU(8, 12, batch_first=True), head=linear(12, 4)), tokens(8, 10, 4.0)


@unseen("files", "torch_fp32", "leaky_relu", "files_differ other_arithmetic", base="sequence", fix=False)
def slope_of_a_leak() -> Any:
    return sequence(leak=0.1)


@unseen("files", "torch_compile", "rnn/gru rnn", "files_differ other_arithmetic", base="sequence", fix=False)
def gate_of_another_checkpoint() -> Any:
    return changed(sequence, "rnn.weight_hh_l0", lambda w: (w[12:24].mul_(1.8), None)[1])


_again(who=("rnn/gru", "rnn", "rnn/gru/mm", "rnn[0]"), extra=("rnn/gru", "rnn", "rnn[0]"))


@unseen("healthy", "torch_compile", base="sequence", fix=False)
def sequence_as_it_is() -> Any:
    return changed(sequence, "q.weight", lambda w: (w.mul_(1.0), None)[1])


# --- a folder of dumped modules


def vision() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.head(m.act(m.norm(m.second(m.first(x)))).mean((2, 3)))

    torch.manual_seed(40)
    return Net(
        body,
        first=nn.Conv2d(3, 8, 3),
        second=nn.Conv2d(8, 8, 3, padding=1),
        norm=nn.GroupNorm(2, 8),
        act=nn.SiLU(),
        head=linear(8, 4),
    ).eval(), image()


def dumped(name: str, who: str, why: str, change: Callable[[Any], None]) -> None:
    """What each module of a changed model gave is the reference of the model as it is."""
    options: list[str] = []

    def make(folder: Path) -> tuple[str, None, dict[str, Any]]:
        file = folder / f"{name}_model.py"
        file.write_text(
            f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
            "from planted.tenth_torch import *  # noqa\n"
        )
        module, x = vision()
        change(module)
        (folder / "dump").mkdir(exist_ok=True)
        for part, one in module.named_children():
            one.register_forward_hook(
                lambda _m, _i, y, part=part: np.save(folder / "dump" / f"{part}.npy", y.detach().numpy())
            )
        np.save(folder / "dump" / "x.npy", x.numpy())
        with torch.no_grad():
            module(x)
        options[:] = ["--baseline", str(folder / "dump"), "--level", "module"]
        return f"{file}:vision", None, {"args_0": x.numpy()}

    CASES.append(
        Unseen(
            name=name,
            kind="dump",
            mode="torch_fp32",
            make=make,
            who=tuple(who.split()),
            why=tuple(why.split()),
            status=int(bool(who)),
            options=options,
            fix=False,
        )
    )


def _louder(module: Any) -> None:
    with torch.no_grad():
        module.second.weight[5].mul_(2)


dumped(
    "dump_whose_second_layer_is_of_another_file",
    "second second/conv2d second/convolution",
    "other_arithmetic files_differ kernels_disagree unfound",
    _louder,
)


# --- training steps


def step(body: Any, loss: Any, optimiser: Any = None, rows: int = 12, **parts: Any) -> Any:
    torch.manual_seed(41)
    net = Net(body, **{key: part() for key, part in parts.items()})
    x = torch.randn(rows, 16, generator=torch.Generator().manual_seed(3))
    return net, (x,), loss, optimiser or (lambda p: torch.optim.AdamW(p, lr=1e-3))


def of_classes(out: Any) -> Any:
    return F.cross_entropy(out.float(), torch.arange(len(out)) % out.shape[-1])


@unseen("training", "torch_autocast_fp16", "div", "overflow", fix=False)
def temperature_of_a_contrast() -> Any:
    """Similarities of up to 16 are divided by a temperature of 1e-4 in half."""

    def body(m: Any, x: Any) -> Any:
        a, b = m.a(x), m.b(x)
        return (a @ b.t()) / 1e-4

    def loss(out: Any) -> Any:
        return F.cross_entropy(out.float() * 1e-4, torch.arange(len(out)))

    return step(body, loss, a=lambda: linear(16, 16, 3.0), b=lambda: linear(16, 16, 3.0))


_again(options=["--step", "backward", "--option", "loss_scale=1"])


@unseen("training", "torch_bf16", "optimiser/", "update_lost", fix=False)
def rate_too_small_for_bfloat16() -> Any:
    """SGD of 1e-5 on weights of a fifth: each update is far below half a unit in the last place."""

    def body(m: Any, x: Any) -> Any:
        return m.b(torch.tanh(m.a(x)))

    return step(
        body, of_classes, lambda p: torch.optim.SGD(p, lr=1e-5), a=lambda: linear(16, 16), b=lambda: linear(16, 4)
    )


# the row is the update's, or that of the operator that makes it
_PARTS = [f"{of}.{part}" for of in "ab" for part in ("weight", "bias")]
_WHO = tuple(
    one.format(part)
    for part in _PARTS
    for one in (
        "update/{}",
        "optimiser/{}",
        "optimiser/{}/add",
        "optimiser/{}/add_",
        "optimiser/{}/sub",
        "optimiser/{}/_foreach_add_",
    )
)
_again(options=["--step", "optimiser"], who=_WHO, extra=_WHO)


@unseen("healthy", "torch_autocast_bf16")
def step_of_a_normed_net() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(F.gelu(m.norm(m.a(x))))

    return step(body, of_classes, a=lambda: linear(16, 32), norm=lambda: nn.LayerNorm(32), b=lambda: linear(32, 4))


_again(options=["--step", "backward"])
