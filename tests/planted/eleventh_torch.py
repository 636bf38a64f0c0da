"""The ten cases of the eleventh batch in PyTorch: whole models in bfloat16, and two modules that should be one; written
and labelled before any of it was compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from planted.eleventh_onnx import DIFFER, Blind
from planted.torch_faults import Net, linear, tokens
from planted.unseen import Unseen

CASES: list[Unseen] = []


def blind(
    kind: str,
    mode: str,
    who: str = "",
    why: str = "",
    *,
    base: str = "",
    status: int | None = None,
    facts: Sequence[str] = (),
    extra: str = "",
    **more: Any,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """A factory in a mode; base: the factory of the baseline, where there are two. Its docstring is what is so."""

    def register(build: Callable[[], Any]) -> Callable[[], Any]:
        def make(folder: Path) -> tuple[str, str | None, None]:
            file = folder / f"{build.__name__}_model.py"
            path = f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
            file.write_text(f"{path}from planted.eleventh_torch import *  # noqa\n")
            return f"{file}:{build.__name__}", f"{file}:{base}" if base else None, None

        CASES.append(
            Blind(
                name=build.__name__,
                kind=kind,
                mode=mode,
                make=make,
                who=tuple(who.split()),
                why=tuple(why.split()),
                status=int(bool(who)) if status is None else status,
                baseline="torch_fp32" if base else "",
                facts=tuple(facts),
                extra=tuple(extra.split()),
                truth=" ".join((build.__doc__ or "").split()),
                **more,
            )
        )
        return build

    return register


def names(*stems: str, most: int = 4) -> str:
    """Names of rows: an operator's, and those of its further calls."""
    return " ".join(one if not n else f"{one}#{n}" for one in stems for n in range(most))


def layer(*paths: str) -> str:
    """The rows that a linear layer may make."""
    return " ".join(
        f"{one}{part}" for one in paths for part in ("", "/addmm", "/linear", "/mm", "/add", "/view", "/_unsafe_view")
    )


# --- integers, counters, decisions, slices in bfloat16


def places(m: Any, mask: Any, whole: bool) -> Any:
    at = (mask.long() if whole else mask).cumsum(1) - 1
    return m.head(m.table[at.long().clamp(0, 599)])


@blind(
    "integers",
    "torch_bf16",
    names("cumsum", "sub"),
    "coarse flips cancellation long_reduction drift amplified cancels",
    extra=names("_to_copy", "cumsum", "sub", "clamp", "index"),
    facts=["cumsum"],
)
def places_counted_in_bfloat16() -> Any:
    """Places are counted by a running sum of a mask in bfloat16: beyond 256 every second, then every fourth is told."""
    torch.manual_seed(51)
    return Net(lambda m, x: places(m, x, False), table=torch.randn(600, 16), head=linear(16, 4)), torch.ones(2, 600)


@blind("healthy", "torch_bf16")
def places_counted_in_whole_numbers() -> Any:
    """The same counted in int64: right in any type."""
    torch.manual_seed(51)
    return Net(lambda m, x: places(m, x, True), table=torch.randn(600, 16), head=linear(16, 4)), torch.ones(2, 600)


@blind("decision", "torch_bf16", facts=["argmax|max|decision|flip|turn|rout|moved"])
def expert_that_another_rounding_chooses() -> Any:
    """Of 2048 tokens a few go to their second best of four experts, whose score is a rounding away."""

    def body(m: Any, x: Any) -> Any:
        which = m.router(x).argmax(-1)
        parts = torch.stack([one(x) for one in m.experts], 1)
        return parts.gather(1, which[:, None, None].expand(-1, 1, 16)).squeeze(1)

    torch.manual_seed(52)
    experts = nn.ModuleList(linear(32, 16) for _ in range(4))
    return Net(body, router=linear(32, 4), experts=experts), torch.randn(2048, 32)


@blind(
    "slices",
    "torch_bf16",
    names("sub", "mul", "mean", "pow"),
    "cancellation cancels amplified coarse packed",
    extra=names("sub", "mul", "mean", "pow", "cat", "add"),
    facts=["lost"],
)
def mean_and_spread_of_a_temperature() -> Any:
    """Means of 12 and variances of 0.2 by E[x^2] - E[x]^2 in one output: steps of 1 at 144 leave nothing of the
    variances, the whole is led by the means."""

    def body(m: Any, x: Any) -> Any:
        y = m.a(x) * 0.7 + 12
        mean = y.mean(-1)
        var = (y * y).mean(-1) - mean * mean
        return torch.cat([mean, mean * 2, var], -1)

    torch.manual_seed(53)
    return Net(body, a=linear(32, 64)), tokens(length=16)


# --- the same work, cut differently


def block() -> Any:
    torch.manual_seed(54)
    return Net(
        lambda m, x: m.head(F.gelu(m.norm(m.a(x)))), a=linear(16, 32), norm=nn.LayerNorm(32), head=linear(32, 4)
    ), torch.randn(8, 16)


@blind("cut", "torch_fp32", base="block")
def four_micro_batches() -> Any:
    """The batch in four parts, joined again: the same."""
    net, x = block()
    whole = net.body
    net.body = lambda m, x: torch.cat([whole(m, part) for part in x.chunk(4)])
    return net, x


def heads(first: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        shape = (2, 8, 3, 4, 8) if first else (2, 8, 4, 3, 8)
        q, key, v = m.qkv(x).view(shape).unbind(2 if first else 3)
        q, key, v = (one.transpose(1, 2) for one in (q, key, v))
        p = (q @ key.transpose(2, 3) / 8**0.5).softmax(-1)
        return m.out((p @ v).transpose(1, 2).reshape(2, 8, 32))

    torch.manual_seed(55)
    return Net(body, qkv=linear(32, 96), out=linear(32, 32)), tokens()


def heads_of_the_paper() -> Any:
    return heads(True)


@blind(
    "cut",
    "torch_fp32",
    names("view", "unbind", "select", "transpose", "_unsafe_view", "reshape", most=8)
    + " unbind[0] unbind[1] unbind[2]"
    + " unbind.0 unbind.1 unbind.2 qkv/view qkv qkv/_unsafe_view",
    f"{DIFFER} unfound",
    base="heads_of_the_paper",
    extra=names(
        "view",
        "unbind",
        "select",
        "transpose",
        "expand",
        "mul",
        "div",
        "bmm",
        "matmul",
        "_softmax",
        "softmax",
        "clone",
        "reshape",
        "_unsafe_view",
        most=8,
    ),
)
def fused_heads_read_in_another_order() -> Any:
    """One product gives q, k and v: one file reads it as three times four heads, the other as four times three."""
    return heads(False)


def attend(parts: int) -> Any:
    def body(m: Any, x: Any) -> Any:
        q, key, v = m.q(x), m.k(x), m.v(x)
        if parts == 1:
            return m.out((q @ key.transpose(1, 2) / 32**0.5).softmax(-1) @ v)
        most = torch.full((2, 8, 1), -1e30)
        total, mixed = torch.zeros(2, 8, 1), torch.zeros(2, 8, 32)
        for some, values in zip(key.chunk(parts, 1), v.chunk(parts, 1), strict=True):
            score = q @ some.transpose(1, 2) / 32**0.5
            new = torch.maximum(most, score.amax(-1, keepdim=True))
            old, e = (most - new).exp(), (score - new).exp()
            total, mixed, most = total * old + e.sum(-1, keepdim=True), mixed * old + e @ values, new
        return m.out(mixed / total)

    torch.manual_seed(56)
    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), out=linear(32, 8)), tokens()


def attention_at_once() -> Any:
    return attend(1)


@blind("cut", "torch_fp32", base="attention_at_once")
def attention_in_four_chunks() -> Any:
    """The softmax over chunks with a running maximum, as flash attention does: the same."""
    return attend(4)


# --- two modules that should be one


def bucket(narrow: bool) -> Any:
    def body(m: Any, ids: Any) -> Any:
        key = (ids.int() * 48271).long() if narrow else ids * 48271
        return m.table[key % 997], key % 997

    torch.manual_seed(57)
    return Net(body, table=torch.randn(997, 8)), torch.randint(1, 1_000_000, (4, 16))


def bucket_of_64_bits() -> Any:
    return bucket(False)


@blind(
    "integers",
    "torch_fp32",
    names("mul", "_to_copy"),
    f"{DIFFER} wrapped",
    base="bucket_of_64_bits",
    extra=names("mul", "_to_copy", "remainder", "index"),
)
def hash_that_wraps_in_32_bits() -> Any:
    """Ids of a million times 48271 exceed 2^31: they wrap in int32, and other buckets are read."""
    return bucket(True)


def wide(turn: bool) -> Any:
    torch.manual_seed(58)
    return Net(
        lambda m, x: torch.tanh(m.a(x)).transpose(1, 2) * 2 if turn else torch.tanh(m.a(x)) * 2, a=linear(16, 16)
    ), tokens(16, 16)


def columns_first() -> Any:
    return wide(True)


@blind(
    "shape",
    "torch_fp32",
    names("transpose", "mul", "tanh"),
    f"{DIFFER} unfound",
    base="columns_first",
    extra=names("transpose", "mul", "tanh"),
)
def square_that_nobody_turns() -> Any:
    """The other file transposes a square before it doubles it; the shapes are equal, the numbers are not."""
    return wide(False)


def with_island(scale: float) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = torch.tanh(m.a(x)).bfloat16().float()
        return m.b(y), m.c(torch.tanh(m.a(x)))

    torch.manual_seed(59)
    net = Net(body, a=linear(32, 32), b=linear(32, 8), c=linear(32, 8))
    with torch.no_grad():
        net.c.weight.mul_(scale)
    return net, torch.randn(16, 32)


def island_as_it_was() -> Any:
    return with_island(1.0)


@blind("units", "torch_fp32", layer("c"), DIFFER, base="island_as_it_was", extra=layer("c"))
def layer_beside_an_island_of_bfloat16() -> Any:
    """Both files pass one road through bfloat16 alike; the other road's weights are 1.003 times as "
    "large: off by 0.003."""
    return with_island(1.003)
