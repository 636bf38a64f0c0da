"""Further training steps with one planted fault each, and healthy ones; labels were written before any was run.

python -m tests.planted.training_further [CASE …]     prints what is blamed in each case, and a count

Every case is a factory of this file, so a command runs it too: --model_file training_further.py:CASE. A fault's label
says how the command must end, what the first culprit's row may be called, and which causes may be said of it; what is
offered to paste is run as pasted. A healthy step must blame nobody and end with status 0.

AFTERWARDS names the cases whose numbers or labels were changed when the first run showed that they planted nothing, or
asked for less than what is true; the first run is in tests/benchmarks/RESULTS.md.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

FP16, BF16, HALF, BRAIN = "torch_autocast_fp16", "torch_autocast_bf16", "torch_fp16", "torch_bf16"
PLAIN = "torch_fp32"  # compared with torch_fp64, or with another factory in torch_fp32
BACK: dict[str, Any] = {"step": "backward"}
ALL: dict[str, Any] = {"step": "optimiser"}
ONE: dict[str, Any] = {"step": "backward", "loss_scale": 1}

CANCELS = ("cancellation", "amplified", "cancels")
OVER = ("overflow", "gradient_overflow", "born")
UNDER = ("underflow", "gradient_underflow", "epsilon_lost")


@dataclass(frozen=True, kw_only=True)
class Case:
    """who: pattern of the first culprit's name; "": healthy. why: causes that may be said; (): any. base: the factory
    that it is compared with; "": itself. says: what the first sentence must have where there is no culprit to name."""

    name: str
    mode: str
    who: str = ""
    why: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=lambda: dict(BACK))
    base: str = ""
    says: str = ""
    file: str = __file__

    @property
    def baseline(self) -> str:
        return "torch_fp64" if self.mode == PLAIN and not self.base else "torch_fp32"


CASES: list[Case] = []

AFTERWARDS = {
    "lstm_cell_grows": "3 times did not overflow", "unet_norm_by_hand": "squares of 50 did not either",
    "root_of_lost_floor": "it was computed in float32", "power_at_zero": "relu's backward hid what was infinite",
    "where_hides_nan": "the square root makes the NaN, before where() hides it",
    "variance_in_float32": "another word for the same cause", "mixed_norm_by_hand": "the same",
    "healthy_contrastive": "GradScaler's first scale overflows: see contrastive_first_scale",
    "contrastive_first_scale": "new", "sure_by_hand": "new", "healthy_rounded_backward": "new",
    "inverse_of_small": "new",
    "losses_added_in_bfloat16": "drift is the word for it",
    "frozen_by_mistake": "nobody computes what is missing: the sentence is to say so",
}  # fmt: skip


def case(
    mode: str, who: str = "", why: tuple[str, ...] = (), into: list[Case] = CASES, **more: Any
) -> Callable[[Any], Any]:  # fmt: skip
    def kept(make: Any) -> Any:
        into.append(Case(file=make.__code__.co_filename, name=make.__name__, mode=mode, who=who, why=why, **more))
        return make

    return kept


def low() -> bool:
    return torch.is_autocast_enabled("cpu")


def drawn(*shape: int, seed: int = 3) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ids(count: int, *shape: int, seed: int = 5) -> Any:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(seed))


def classes(out: Any) -> Any:
    return F.cross_entropy(out.float(), ids(out.shape[-1], len(out)))


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3)


class Own(nn.Module):
    """A product, an operation of its own, and a product."""

    def __init__(self, own: Callable[[Any], Any], d: int = 16, out: int = 5) -> None:
        super().__init__()
        self.a, self.b, self.own = nn.Linear(d, d), nn.Linear(d, out), own

    def forward(self, x: Any) -> Any:
        return self.b(self.own(self.a(x)))


def own(operation: Callable[[Any], Any], times: float = 1.0, optimiser: Any = adamw, rows: int = 12) -> Any:
    torch.manual_seed(0)
    return Own(operation), (drawn(rows, 16) * times,), classes, optimiser


def loss_own(loss: Callable[[Any], Any], times: float = 1.0, optimiser: Any = adamw, act: Any = torch.tanh) -> Any:
    torch.manual_seed(0)
    return Own(act), (drawn(12, 16) * times,), loss, optimiser


# architectures


class HandLstm(nn.Module):
    """One LSTM by hand; ``carry`` changes the cell's state between steps."""

    def __init__(self, carry: Callable[[Any], Any]) -> None:
        super().__init__()
        self.x, self.h, self.fc, self.carry = nn.Linear(6, 40), nn.Linear(10, 40), nn.Linear(10, 5), carry

    def forward(self, x: Any) -> Any:
        h = c = self.x(x[:, 0])[:, :10] * 0
        for t in range(x.shape[1]):
            i, f, g, o = (self.x(x[:, t]) + self.h(h)).chunk(4, -1)
            c = self.carry(f.sigmoid() * c + i.sigmoid() * g.tanh())
            h = o.sigmoid() * c.tanh()
        return self.fc(h)


class Unet(nn.Module):
    """Two levels with GroupNorm and a skip connection; ``norm`` makes the first norm."""

    def __init__(self, norm: Callable[[], Any]) -> None:
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(3, 8, 3, padding=1), norm()
        self.c2, self.n2 = nn.Conv2d(8, 8, 3, 2, 1), nn.GroupNorm(2, 8)
        self.up, self.c3, self.n3 = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 8, 3, padding=1), nn.GroupNorm(4, 8)
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, x: Any) -> Any:
        first = F.silu(self.n1(self.c1(x)))
        inner = F.silu(self.n2(self.c2(first)))
        return self.out(F.silu(self.n3(self.c3(torch.cat([first, self.up(inner)], 1)))))


class HandNorm(nn.Module):
    """GroupNorm of one group whose mean square is taken in the type that comes in."""

    def forward(self, x: Any) -> Any:
        x = x * 1000
        return x / ((x * x).mean((1, 2, 3), keepdim=True) + 1e-5).sqrt()


def unet(norm: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    x = drawn(2, 3, 16, 16)
    return Unet(norm), (x,), lambda out: F.mse_loss(out.float(), x), adamw


class Moe(nn.Module):
    """Four experts, the best two of a token; ``route`` makes the router's scores of its logits."""

    def __init__(self, route: Callable[[Any], Any]) -> None:
        super().__init__()
        self.inp, self.router, self.head, self.route = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 5), route
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Any) -> Any:
        x = self.inp(x)
        best, which = self.route(self.router(x)).topk(2, -1)
        made = torch.stack([expert(x) for expert in self.experts], 1)
        picked = made.gather(1, which.unsqueeze(-1).expand(-1, -1, made.shape[-1]))
        return self.head((picked * best.softmax(-1).unsqueeze(-1)).sum(1))


def moe(route: Callable[[Any], Any]) -> Any:
    torch.manual_seed(0)
    return Moe(route), (drawn(24, 8),), classes, adamw


class Relative(nn.Module):
    """A ViT's block with a relative position bias; ``mask``: added to the scores."""

    def __init__(self, mask: Callable[[Any], Any]) -> None:
        super().__init__()
        self.patch, self.qkv, self.o = nn.Linear(12, 16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.n1, self.n2, self.up, self.down = nn.LayerNorm(16), nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.table, self.head, self.mask = nn.Parameter(torch.randn(17, 2) * 0.2), nn.Linear(16, 5), mask
        at = torch.arange(9)
        self.register_buffer("index", at[:, None] - at[None] + 8)

    def forward(self, x: Any) -> Any:
        x = self.patch(x)
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(d // 2) + self.table[self.index].permute(2, 0, 1).to(q.dtype)
        x = x + self.o((self.mask(scores).softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(b, n, d))
        return self.head((x + self.down(F.gelu(self.up(self.n2(x))))).mean(1))


def relative(mask: Callable[[Any], Any]) -> Any:
    torch.manual_seed(0)
    return Relative(mask), (drawn(4, 9, 12),), classes, adamw


class Pair(nn.Module):
    """Two towers and a learned temperature."""

    def __init__(self, unit: bool) -> None:
        super().__init__()
        self.a, self.b, self.unit = nn.Linear(12, 64), nn.Linear(10, 64), unit
        self.temperature = nn.Parameter(torch.tensor(math.log(100.0)))

    def forward(self, x: Any, y: Any) -> Any:
        a, b = self.a(x), self.b(y)
        if self.unit:
            a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
        return (a @ b.t()) * self.temperature.exp().to(a.dtype)


def pair(unit: bool, times: float) -> Any:
    torch.manual_seed(0)

    def loss(out: Any) -> Any:
        to = torch.arange(len(out))
        return (F.cross_entropy(out.float(), to) + F.cross_entropy(out.float().t(), to)) / 2

    return Pair(unit), (drawn(8, 12) * times, drawn(8, 10, seed=4) * times), loss, adamw


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self, words: int = 40, d: int = 16) -> None:
        super().__init__()
        self.e, self.n, self.mix = nn.Embedding(words, d), nn.LayerNorm(d), nn.Linear(d, d)
        self.head = nn.Linear(d, words, bias=False)
        self.head.weight = self.e.weight

    def forward(self, words: Any) -> Any:
        x = self.e(words)
        return self.head(self.n(x + F.gelu(self.mix(x.cumsum(1) / 8))))


def tied(optimiser: Any, words: Any = None) -> Any:
    torch.manual_seed(0)
    given = ids(40, 4, 10) if words is None else words

    def loss(out: Any) -> Any:
        return F.cross_entropy(out.flatten(0, 1).float(), given.roll(-1, 1).flatten())

    return Tied(), (given,), loss, optimiser


class Again(nn.Module):
    """A block that is computed again in backward; ``act`` is told whether it is."""

    def __init__(self, act: Callable[[Any, bool], Any]) -> None:
        super().__init__()
        self.a, self.b, self.c, self.act, self.calls = nn.Linear(12, 24), nn.Linear(24, 12), nn.Linear(12, 5), act, 0

    def inside(self, x: Any) -> Any:
        self.calls += 1
        return x + self.b(self.act(self.a(x), self.calls > 1))

    def forward(self, x: Any) -> Any:
        self.calls = 0
        return self.c(checkpoint(self.inside, x.requires_grad_(), use_reentrant=False))


def again(act: Callable[[Any, bool], Any]) -> Any:
    torch.manual_seed(0)
    return Again(act), (drawn(12, 12),), classes, adamw


class Skip(nn.Module):
    """Two branches; ``left`` changes the first."""

    def __init__(self, left: Callable[[Any], Any], frozen: bool = False) -> None:
        super().__init__()
        self.inp, self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.out, self.left = nn.Linear(16, 5), left
        if frozen:
            self.a.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        x = self.inp(x)
        return self.out(torch.relu(self.left(self.a(x)) + self.b(x)))


def skip(left: Callable[[Any], Any], frozen: bool = False) -> Any:
    torch.manual_seed(0)
    return Skip(left, frozen), (drawn(10, 8),), classes, adamw


# functions with a backward of their own


class CastBack(torch.autograd.Function):
    """SiLU whose backward multiplies in float16, with a factor that is divided out again."""

    @staticmethod
    def forward(ctx: Any, x: Any, narrow: bool) -> Any:
        ctx.save_for_backward(x)
        ctx.narrow = narrow and low()
        return F.silu(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        s = x.float().sigmoid()
        slope = (s * (1 + x.float() * (1 - s))) * 1e6
        if ctx.narrow:
            slope = slope.half()
        return ((g.float() * slope.float()) / 1e6).to(g.dtype), None


class RoundedBack(torch.autograd.Function):
    """SiLU whose backward rounds its gradient to bfloat16; the values go on in float32."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return F.silu(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        if g.dtype is torch.float32:  # the target's
            g = g.bfloat16().to(g.dtype)
        return g * s * (1 + x * (1 - s))


class RoundedToBrain(torch.autograd.Function):
    """SiLU whose backward rounds its gradient to bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Any, narrow: bool) -> Any:
        ctx.save_for_backward(x)
        ctx.narrow = narrow
        return F.silu(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return (g.bfloat16().to(g.dtype) if ctx.narrow else g) * s * (1 + x * (1 - s)), None


# optimisers of one's own


class Lion(torch.optim.Optimizer):
    """Sign of an average; ``narrow`` keeps the average of a bfloat16 parameter in float8."""

    def __init__(self, parameters: Any, narrow: bool) -> None:
        super().__init__(parameters, {"lr": 1e-2})
        self.narrow = narrow

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            kept = self.state[p].setdefault("average", p.grad * 0.5)
            mixed = kept * 0.9 + p.grad * 0.1
            p.add_(mixed / mixed.abs().mean() * -1e-2)
            kept = kept * 0.99 + p.grad * 0.01
            if self.narrow and p.dtype is torch.bfloat16:
                kept = kept.to(torch.float8_e4m3fn).to(p.dtype)
            self.state[p]["average"] = kept


class Ema(torch.optim.SGD):
    """SGD that follows its parameters with an average."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step()
        for p in (p for group in self.param_groups for p in group["params"]):
            kept = self.state[p].setdefault("ema", torch.zeros_like(p))
            kept.mul_(0.9).add_(p, alpha=0.1)


class ByHand(torch.optim.SGD):
    """Divides by the loss's scale of 1024, and clips to a norm of 1; which of both is first?"""

    def __init__(self, parameters: Any, clips_first: bool) -> None:
        super().__init__(parameters, lr=0.1)
        self.clips_first = clips_first

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        given = [p for group in self.param_groups for p in group["params"]]
        for turn in (0, 1):
            if (turn == 0) == self.clips_first:
                nn.utils.clip_grad_norm_(given, 1.0)
            else:
                for p in given:
                    p.grad.div_(1024.0)
        super().step()


# faults


@case(FP16, r"mul|add", ("overflow",))
def lstm_cell_grows() -> Any:
    """The cell's state is multiplied by 6 in each of 20 steps, in the type that the gates have."""
    torch.manual_seed(0)
    return HandLstm(lambda c: c * 6.0), (drawn(6, 20, 6),), classes, adamw


@case(FP16, r"n1/mul#?2?", ("overflow",))
def unet_norm_by_hand() -> Any:
    return unet(HandNorm)


@case(BF16, r"add|topk|softmax|router|mul", ())
def moe_offset_router() -> Any:
    """An offset of 300 leaves bfloat16 no digits to tell the experts' scores from one another."""
    return moe(lambda logits: logits + torch.full_like(logits, 300.0))


@case(FP16, r"add|mul|softmax|sub|full|masked_fill|where|to\b|.*:to", ("overflow", "born", "inf_input"))
def relative_masked_row() -> Any:
    """The first row is masked as a whole by -1e5: -Inf in float16, and a softmax of nothing but -Inf is NaN."""

    def mask(scores: Any) -> Any:
        gone = torch.zeros_like(scores)
        gone[..., 0, :] = 1
        return (scores + gone * -1e5).to(scores.dtype)

    return relative(mask)


@case(FP16, r"mul", ("overflow",))
def contrastive_without_unit() -> Any:
    """Features are not normalised, so that 100 times their product is beyond float16."""
    return pair(False, 12.0)


@case(FP16, r"(loss/)?(log|softmax|_softmax|view|.*:to)", ("underflow", "born", "overflow", "log_of_zero"))
def ctc_log_by_hand() -> Any:
    """The probabilities go through float16 before their logarithm: 0 there."""
    torch.manual_seed(0)

    def loss(out: Any) -> Any:
        p = (out.float() * 40).softmax(-1)
        p = p.half() if low() else p
        return F.ctc_loss(p.log().float().view(12, 2, 5), ids(4, 2, 3) + 1, (12, 12), (3, 3))

    return Own(torch.tanh), (drawn(24, 16),), loss, adamw


@case(BF16, r"(backward/)?.*", ("coarse",))
def checkpoint_differs() -> Any:
    """What is computed again goes through float8."""

    def act(x: Any, second: bool) -> Any:
        return F.gelu(x.to(torch.float8_e5m2).to(x.dtype) if second and low() else x)

    return again(act)


@case(BRAIN, r"optimiser/|update/", ("update_lost",), settings=ALL)
def tied_stagnates() -> Any:
    return tied(lambda p: torch.optim.SGD(p, lr=1e-5))


@case(BF16, r"add", ("long_reduction", "drift"))
def losses_added_in_bfloat16() -> Any:
    """600 micro-batches' losses are added one by one to a bfloat16: beyond 256 nothing is added any more."""

    def loss(out: Any) -> Any:
        each = F.cross_entropy(out.float(), ids(5, len(out)), reduction="none").repeat(50)
        total = torch.zeros((), dtype=torch.bfloat16 if low() else torch.float32)
        for one in each:
            total = total + one.to(total.dtype)
        return total.float() / len(each)

    return loss_own(loss)


@case(HALF, r"optimiser/", ("epsilon_lost", "underflow", "born"), settings=ALL)
def adagrad_in_half() -> Any:
    return loss_own(lambda out: classes(out) * 1e-3, optimiser=lambda p: torch.optim.Adagrad(p, lr=1e-2))


@case(BF16, r"backward/silu/", ("overflow", "gradient_overflow"))
def own_backward_casts() -> Any:
    return own(lambda x: CastBack.apply(x, True))


@case(PLAIN, r"backward/silu/", ("coarse", "other_arithmetic", "rounding"))
def own_backward_rounds() -> Any:
    """A gradient that is rounded to bfloat16 where float32 was promised."""
    return own(RoundedBack.apply)


@case(FP16, r"mul", ("overflow",), settings=ONE)
def scaled_by_hand() -> Any:
    """The loss itself is in float16 when it is multiplied by 65536."""

    def loss(out: Any) -> Any:
        one = classes(out)
        return (one.half() if low() else one) * 65536

    return loss_own(loss)


def unscaled_then_clipped() -> Any:
    return loss_own(lambda out: classes(out) * 1024, optimiser=lambda p: ByHand(p, False))


@case(PLAIN, r"optimiser/|update/", (), settings=ALL, base="unscaled_then_clipped")
def clipped_then_unscaled() -> Any:
    return loss_own(lambda out: classes(out) * 1024, optimiser=lambda p: ByHand(p, True))


def joined() -> Any:
    return skip(lambda x: x)


@case(PLAIN, r"gradient/a\.|backward/", (), base="joined")
def detached_by_mistake() -> Any:
    return skip(lambda x: x.detach())


@case(PLAIN, r"gradient/a\.|backward/", (), base="joined", says=r"`?gradient/a\.weight.*requires? (a|no) gradient")
def frozen_by_mistake() -> Any:
    return skip(lambda x: x, True)


@case(BF16, r"mul_|mul|.*copy_|scale", ())
def changed_in_place() -> Any:
    """Under autocast alone, what the backward pass will read is halved in place behind autograd's back."""

    def halves(x: Any) -> Any:
        y = x.tanh()
        z = y * y
        if low():
            y.data.mul_(0.5)
        return z

    return own(halves)


@case(BRAIN, r"mean|mul|sub|pow|add", CANCELS)
def mixed_norm_by_hand() -> Any:
    """bfloat16 parameters; the norm's variance is E[x^2] - E[x]^2 in their type, with a mean of 30."""

    def norm(x: Any) -> Any:
        far = x + 30
        mean = far.mean(-1, keepdim=True)
        return (far - mean) / ((far * far).mean(-1, keepdim=True) - mean * mean + 1e-2).abs().sqrt()

    return own(norm)


@case(HALF, r"optimiser/|update/", ("update_lost",), settings=ALL)
def momentum_stagnates() -> Any:
    return loss_own(classes, optimiser=lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9))


@case(HALF, r"optimiser/", ("epsilon_lost", "underflow", "born"), settings=ALL)
def rmsprop_in_half() -> Any:
    return loss_own(lambda out: classes(out) * 1e-3, optimiser=lambda p: torch.optim.RMSprop(p, lr=1e-3))


@case(BRAIN, r"optimiser/|state/", ("coarse", "underflow", "flushed"), settings=ALL)
def lion_in_float8() -> Any:
    return loss_own(classes, optimiser=lambda p: Lion(p, True))


@case(FP16, r"(backward/)?(nll_loss|div|cross|mul|_log_softmax|log_softmax)", ())
def all_ignored() -> Any:
    """Every label is to be ignored: 0/0, in the baseline as in the target."""
    return loss_own(lambda out: F.cross_entropy(out.float(), torch.full((len(out),), -100), label_smoothing=0.1))


@case(PLAIN, r"_?softmax|log|exp|div", ())
def log_of_softmax_in_float32() -> Any:
    """Probabilities below float32's least number, and their logarithm."""
    return loss_own(lambda out: -(out * 700).softmax(-1).log().mean(), act=torch.relu)


@case(PLAIN, r"sub|mul|mean|pow", CANCELS)
def variance_in_float32() -> Any:
    def loss(out: Any) -> Any:
        far = out + 5000
        return ((far * far).mean(-1) - far.mean(-1) ** 2).mean()

    return loss_own(loss)


@case(FP16, r"(backward/)?(mul|sum|add|sqrt|pow)", ())
def root_of_lost_floor() -> Any:
    """The distance of equal points: its floor of 1e-10 is 0 in float16, and a root's slope at 0 is infinite."""

    def distance(x: Any) -> Any:
        apart = x[:, :8] - x[:, :8].roll(1, 0)
        same = apart * 1e-5
        return torch.cat([(same * same + 1e-10).sqrt(), x[:, 8:]], -1)

    return own(distance)


@case(FP16, r"(backward/)?(mul|sum|sqrt|add|div)", ())
def unit_of_tiny() -> Any:
    """Squares of 1e-5 are 0 in float16, and so is the floor: 0/0."""

    def unit(x: Any) -> Any:
        tiny = x * 1e-5
        return tiny / ((tiny * tiny).sum(-1, keepdim=True).sqrt() + 1e-8)

    return own(unit)


@case(HALF, r"(backward/)?(add|pow)", ())
def power_at_zero() -> Any:
    """A square of 1e-4 and its floor are 0 in float16, where the slope of a power of one half is infinite."""
    return own(lambda x: ((x * 1e-4) ** 2 + 1e-9) ** 0.5 * 1e4)


@case(BF16, r"sqrt|backward/(sqrt|where|div|mul)", ("born_on_both",))
def where_hides_nan() -> Any:
    """The trap: where() hides sqrt of negative numbers, and 0 times NaN comes back; in both runs."""
    return own(lambda x: torch.where(x > 0, x.sqrt(), torch.zeros_like(x)))


@case(BF16, r"backward/sqrt/div", ("slope_infinite",))
def root_of_zero() -> Any:
    """A norm of a row of zeros: its slope is infinite there, and the gradient that arrives is 0; in both runs."""
    return own(lambda x: (x - x[:1]) * torch.sqrt(((x - x[:1]) ** 2).sum(-1, keepdim=True)))


@case(BF16, r"backward/pow/mul", ("slope_infinite",))
def distance_to_itself() -> Any:
    """Distances of all pairs: the root's slope is infinite at 0, and times the square's slope of 0 that is NaN."""
    return own(lambda x: torch.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)) @ x)


@case(BRAIN, r"cumsum|sin|mul|add|div", ())
def positions_in_bfloat16() -> Any:
    """Positions 1 to 600 are counted in bfloat16, which knows no odd number above 256."""
    torch.manual_seed(0)

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            at = torch.ones_like(x[..., :1]).cumsum(1)
            return self.b((self.a(x) * (at * 0.7).sin()).mean(1))

    return Positions(), (drawn(3, 600, 4),), classes, adamw


@case(BRAIN, r"backward/.*embedding", ())
def padding_summed_in_bfloat16() -> Any:
    """One word stands at nearly every place: its gradient is added up in bfloat16, one place after the other."""
    words = ids(40, 8, 500)
    words = torch.where(ids(20, 8, 500, seed=9) > 0, torch.zeros_like(words), words)
    torch.manual_seed(0)

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e, self.head = nn.Embedding(40, 8), nn.Linear(8, 5)

        def forward(self, given: Any) -> Any:
            return self.head(self.e(given) + 1)

    def loss(out: Any) -> Any:
        return F.cross_entropy(out.flatten(0, 1).float(), torch.ones(4000, dtype=torch.long))

    return Bag(), (words,), loss, adamw


@case(FP16, r"exp", ("overflow",))
def sum_of_exponentials() -> Any:
    """log(sum(exp)) without its maximum taken away, in float16."""

    def loss(out: Any) -> Any:
        size = out.half() * 30 if low() else out * 30
        return (size.exp().sum(-1).log() - size[:, 0]).float().mean()

    return loss_own(loss)


@case(FP16, r"backward/", ("gradient_overflow",))
def contrastive_first_scale() -> Any:
    """100 times a loss that is scaled by 65536."""
    return pair(True, 1.0)


@case(BF16, r"log|add|view|.*:to|softmax|nll", ())
def sure_by_hand() -> Any:
    """The model is sure of itself, and right: its probabilities are 1 in bfloat16, and the loss is 0."""

    def loss(out: Any) -> Any:
        low_type = out.dtype
        p = (out.float() * 100).softmax(-1)
        return F.nll_loss((p.to(low_type) + 1e-9).log().float(), p.argmax(-1))

    return loss_own(loss, times=3.0)


@case(FP16)
def healthy_rounded_backward() -> Any:
    """A gradient that is rounded to bfloat16 where float16 was promised: 0.2 %, as much as float16 itself may lose."""
    return own(lambda x: RoundedToBrain.apply(x, low()))


@case(BF16, r"(backward/)?(sub|add|reciprocal|div|mul|pow|neg)", ())
def inverse_of_small() -> Any:
    """1 over what is left of 4 and a number near it: in bfloat16 a few units, and its backward squares that."""
    return own(lambda x: 1 / ((x.tanh() * 0.1 + 4) - 3.98) * 0.1)


# healthy


@case(BF16)
def healthy_gru() -> Any:
    torch.manual_seed(0)

    class Rnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.r, self.fc = nn.GRU(6, 12, batch_first=True, num_layers=2), nn.Linear(12, 5)

        def forward(self, x: Any) -> Any:
            return self.fc(self.r(x)[0][:, -1])

    return Rnn(), (drawn(8, 9, 6),), classes, adamw


@case(FP16)
def healthy_lstm() -> Any:
    torch.manual_seed(0)
    return HandLstm(lambda c: c), (drawn(6, 20, 6),), classes, adamw


@case(FP16)
def healthy_unet() -> Any:
    return unet(lambda: nn.GroupNorm(2, 8))


@case(BRAIN)
def healthy_unet_parameters() -> Any:
    return unet(lambda: nn.GroupNorm(2, 8))


@case(FP16)
def healthy_moe() -> Any:
    return moe(lambda logits: logits.softmax(-1))


@case(BF16)
def healthy_relative() -> Any:
    return relative(lambda scores: scores.masked_fill(torch.ones(9, 9).triu(1).bool(), torch.finfo(scores.dtype).min))


@case(FP16, settings={"step": "backward", "loss_scale": 1024})
def healthy_contrastive() -> Any:
    return pair(True, 1.0)


@case(BF16)
def healthy_ctc() -> Any:
    torch.manual_seed(0)

    def loss(out: Any) -> Any:
        return F.ctc_loss(out.float().log_softmax(-1).view(12, 2, 5), ids(4, 2, 3) + 1, (12, 12), (3, 3))

    return Own(torch.tanh), (drawn(24, 16),), loss, adamw


@case(FP16)
def healthy_again() -> Any:
    return again(lambda x, second: F.gelu(x))


@case(BF16, settings=ALL)
def healthy_tied() -> Any:
    return tied(adamw)


@case(BF16, settings=ALL)
def healthy_average() -> Any:
    return loss_own(classes, optimiser=lambda p: Ema(p, lr=1e-2))


@case(FP16, settings=ALL)
def healthy_momentum() -> Any:
    return loss_own(classes, optimiser=lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True))


@case(BF16, settings=ALL)
def healthy_rmsprop() -> Any:
    return loss_own(classes, optimiser=lambda p: torch.optim.RMSprop(p, lr=1e-3))


@case(BF16, settings=ALL)
def healthy_lion() -> Any:
    return loss_own(classes, optimiser=lambda p: Lion(p, True))  # its parameters are float32 under autocast


@case(FP16)
def healthy_smoothing() -> Any:
    some = torch.where(ids(3, 12) > 0, ids(5, 12), torch.full((12,), -100))
    return loss_own(lambda out: F.cross_entropy(out.float(), some, label_smoothing=0.1))


@case(FP16)
def healthy_own_backward() -> Any:
    return own(lambda x: CastBack.apply(x, False))


@case(BRAIN)
def healthy_wide_norm() -> Any:
    """bfloat16 parameters and a norm in float32."""

    def norm(x: Any) -> Any:
        return F.layer_norm(x.float(), (16,)).to(x.dtype)

    return own(norm)


@case(BF16)
def healthy_where() -> Any:
    """The trap stepped over: where() inside too."""
    return own(lambda x: torch.where(x > 0, torch.where(x > 0, x, torch.ones_like(x)).sqrt(), torch.zeros_like(x)))


@case(PLAIN, settings=ALL)
def healthy_float32() -> Any:
    return relative(lambda scores: scores)


@case(FP16)
def healthy_bias_before_norm() -> Any:
    """The bias's true gradient is 0, and what is left of it is rounding; a gate begins at 0; a layer is frozen."""
    torch.manual_seed(0)

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.b, self.c = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 16), nn.Linear(16, 5)
            self.gate, self.unused = nn.Parameter(torch.zeros(1)), nn.Linear(3, 3)
            self.c.weight.requires_grad_(False)

        def forward(self, x: Any) -> Any:
            x = self.n(self.a(x))
            return self.c(F.relu_(x + self.gate * self.b(x)))

    return Gated(), (drawn(16, 8),), classes, adamw


def report_of(one: Case, **changed: Any) -> Any:
    """A case's report. changed: settings in place of its own, as they are pasted."""
    import precision_debug

    given = {"run_mode": one.mode, "baseline": one.baseline, "explain": "fast", **one.settings, **changed}
    base = f"{one.file}:{one.base}" if one.base else None
    return precision_debug.compare(f"{one.file}:{one.name}", baseline_model=base, **given)


def outcome(one: Case) -> tuple[bool, bool, str, str]:
    """Whether status and first culprit are as labelled, whether the cause is, what was said, what the fix brought."""
    from precision_debug.report.lead import lead_sentences

    report = report_of(one)
    said = f"({report.exit_status}) {lead_sentences(report)[0].en}"
    culprits = report.explanation.culprits if report.explanation is not None else ()
    if not one.who:
        return not culprits and report.exit_status == 0, True, said, ""
    if not culprits:
        fits = bool(one.says) and report.exit_status == 1 and re.search(one.says, said) is not None
        return fits, fits, said, ""
    first = culprits[0]
    who = report.exit_status == 1 and re.match(f"({one.who})", first.name) is not None
    return who, not one.why or first.cause in one.why, f"{first.name} [{first.cause}] {said}", _pasted(one, report)


def _pasted(one: Case, report: Any) -> str:
    """What the option that a report offers brings: the worst output before and after, as measured; "": none is."""
    kept = report.to_keep
    if kept is None or not kept.option:
        return f"none ({kept.state or kept.why})" if kept is not None else ""
    words = kept.option.split()
    changed = dict(kept.settings)
    if words[0] == "--run_mode":
        changed["run_mode"] = words[1]
    after = report_of(one, **changed)
    was, now = (_worst(each) for each in (report, after))
    return f"{kept.option[:60]}: {was:.3g} -> {now:.3g}{'' if now < was / 2 or after.exit_status == 0 else ' NO HELP'}"


def _worst(report: Any) -> float:
    from precision_debug.numbers.born import is_broken

    rows = [row for row in report.outputs if row.name not in report.explanation.decided_by_rounding]
    return max((math.inf if row.comparison is None or row.relative_l2 is None or is_broken(row.comparison)
                else row.relative_l2 for row in rows), default=math.inf)  # fmt: skip


def run(cases: list[Case], names: list[str]) -> Iterator[str]:
    """A line for each case, and the count."""
    right: dict[bool, list[tuple[bool, bool]]] = {True: [], False: []}
    for one in cases:
        if names and one.name not in names:
            continue
        begun = time.process_time()
        try:
            who, why, said, fix = outcome(one)
        except Exception as error:
            who, why, said, fix = False, False, f"{type(error).__name__}: {error}", ""
        right[bool(one.who)].append((who, why))
        word = "ok  " if who and why else "WHY " if who else "MISS"
        yield f"{word} {one.name:26} {one.mode:20} {time.process_time() - begun:4.1f} s  {said[:330]}"
        if fix:
            yield f"       fix: {fix}"
    for faulty, found in right.items():
        if found:
            fits = sum(who for who, _ in found)
            yield (f"{'faults' if faulty else 'healthy'}: {fits} of {len(found)} as labelled,"
                   f" cause too {sum(who and why for who, why in found)}")  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in run(CASES, sys.argv[1:]):
        print(line, flush=True)
