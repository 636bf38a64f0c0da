"""A twenty-fourth batch of PyTorch: kept programs (TorchScript, .pt2) beside their modules, modules of six blocks
with the mistake in the middle, narrow types, the compiler; written and labelled before any of it was compared.

    python tests/planted/twentyfourth_torch.py [WORD …]

measures the labels without the tool, in float64, as the twenty-first's does.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F
from torch import nn

from planted import fifteenth_torch, fourteenth_torch, twentyfirst_torch
from planted.eleventh_torch import layer
from planted.eleventh_torch import names as _names
from planted.fifteenth_torch import LOST
from planted.onnx_faults import Array, Graph
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import DIFFER, Thread

CASES: list[Thread] = []
BUILDS: dict[str, tuple[Any, Any]] = {}
case = functools.partial(fifteenth_torch.case, cases=CASES, module="twentyfourth_torch")
converted = functools.partial(fourteenth_torch.converted, cases=CASES, module_of="twentyfourth_torch")
names = functools.partial(_names, most=8)
two = functools.partial(twentyfirst_torch.two, of=globals())
OTHER = f"{DIFFER} unfound"


class Block(nn.Module):
    """Attention of four heads and a feed-forward, each behind a norm (about 25 operators)."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.m = nn.LayerNorm(32), nn.LayerNorm(32)
        self.q, self.k, self.v, self.o = (linear(32, 32) for _ in range(4))
        self.up, self.down = linear(32, 64), linear(64, 32)

    def forward(self, x: Any) -> Any:
        h = self.n(x)
        q, k, v = (one(h).unflatten(-1, (4, 8)).transpose(1, 2) for one in (self.q, self.k, self.v))
        share = (q @ k.transpose(-1, -2) * 8**-0.5).softmax(-1)
        x = x + self.o((share @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.m(x))))


def _six() -> Any:
    return Net(lambda m, x: m.o(functools.reduce(lambda y, one: one(y), m.blocks, x)), o=linear(32, 8),
               blocks=nn.ModuleList(Block() for _ in range(6)))  # fmt: skip


def _heads(how: bool) -> Any:
    net = _six()
    if how:
        with torch.no_grad():
            w = net.blocks[3].v.weight
            w.copy_(w.view(4, 8, 32)[[1, 0, 2, 3]].reshape(32, 32))
            b = net.blocks[3].v.bias
            b.copy_(b.view(4, 8)[[1, 0, 2, 3]].reshape(32))
    return net, tokens()


two("two_heads_of_the_values_exchanged_in_the_fourth_of_six_blocks", "The first two heads' values of the fourth "
    "block are exchanged, weight and bias.", _heads, False, True, layer("blocks.3.v"),
    facts=[r"blocks\.3\.v"])  # fmt: skip


def _cached(how: bool) -> Any:
    """The last four of ten words; how: masked by is_causal, which begins at the first key."""

    def body(m: Any, x: Any) -> Any:
        q, k, v = m.q(x[:, 6:]), m.k(x), m.v(x)
        seen = None if how else m.seen
        return m.o(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=seen,
                                                  is_causal=how)[:, 0])  # fmt: skip

    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), o=linear(32, 8),
               seen=torch.ones(4, 10, dtype=torch.bool).tril(6)), torch.randn(2, 10, 32)  # fmt: skip


_SDPA = names("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu",
              "_scaled_dot_product_attention_math_for_cpu", "_scaled_dot_product_attention_math",
              "where", "softmax", "add", "bmm", "matmul") + " o/view"  # fmt: skip
# After the first run: o/view is the row of the stretch that has the attention in it, and is told by that.
two("causal_mask_that_begins_at_the_first_key_of_a_cache", "Four new words see by is_causal, whose triangle begins at "
    "the first of ten keys, in place of the last.", _cached, False, True, _SDPA, facts=["is_causal|mask"])  # fmt: skip


def _joined(how: bool) -> Any:
    """Queries, keys and values as one matrix or three."""

    def body(m: Any, x: Any) -> Any:
        q, k, v = m.qkv(x).chunk(3, -1) if how else [F.linear(x, *one) for one in zip(
            m.qkv.weight.chunk(3), m.qkv.bias.chunk(3), strict=True)]  # fmt: skip
        return m.o(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])

    return Net(body, qkv=linear(32, 96), o=linear(32, 8)), tokens()


two("one_matrix_of_projections_or_three", "Queries, keys and values by one matrix or by three: rounding.", _joined,
    False, True)  # fmt: skip


# --- programs that are kept


def _normed() -> Any:
    torch.manual_seed(2401)
    net = Net(lambda m, x: m.o(torch.relu(m.n(m.c(x)))), c=nn.Conv2d(3, 8, 3, padding=1), n=nn.BatchNorm2d(8),
              o=nn.Conv2d(8, 4, 1))  # fmt: skip
    with torch.no_grad():
        net.n.weight.uniform_(0.5, 1.5), net.n.bias.normal_()
        net.n.running_mean.normal_().mul_(0.3), net.n.running_var.uniform_(0.2, 0.6)
    return net


def net_in_evaluation() -> Any:
    return _normed().eval(), image()


_NORM = names("native_batch_norm", "batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit",
              "_native_batch_norm_legit_functional", "native_batch_norm_backward", "add_")  # fmt: skip


@case("", "port", "torch_fp32", f"{_NORM} n n/batch_norm n/native_batch_norm n/_native_batch_norm_legit", f"{OTHER} "
      "random not_repeatable", base="net_in_evaluation", file="exported", statuses=(1, 3), extra=_NORM,
      facts=["train|running|statistics"])  # fmt: skip
def program_exported_before_eval_was_called() -> Any:
    """torch.export of a module in training mode: the kept batch norm takes the batch's statistics."""
    return _normed().train(), image()


def _small(epsilon: float) -> Any:
    torch.manual_seed(2402)
    net = Net(lambda m, x: m.o(F.gelu(m.n(m.a(x) * 0.02))), a=linear(32, 32), n=nn.LayerNorm(32, eps=epsilon),
              o=linear(32, 8))  # fmt: skip
    return net.eval(), tokens()


def norm_of_small_numbers() -> Any:
    return _small(1e-5)


_LN = names("layer_norm", "native_layer_norm") + " n n/layer_norm n/native_layer_norm"


@case("", "port", "torch_fp32", _LN, OTHER, base="norm_of_small_numbers", file="traced", extra=_LN, facts=["eps"])
def norm_traced_with_an_epsilon_of_a_thousandth() -> Any:
    """TorchScript whose norm has an epsilon of 1e-3 beside the module's 1e-5; its input is of 0.02."""
    return _small(1e-3)


def six_blocks_as_a_module() -> Any:
    torch.manual_seed(2403)
    return _six().eval(), tokens()


@case("", "healthy", "torch_fp32", base="six_blocks_as_a_module", file="apart")
def six_blocks_as_a_program_taken_apart() -> Any:
    """Six blocks, exported and taken apart into core operators: rounding."""
    return six_blocks_as_a_module()


# --- narrow types and the compiler


@case("", "overflow", "torch_fp16", names("sum"), "overflow born", extra=names("sum", "div", "mul"))
def mean_by_a_sum_of_eight_thousand_in_half() -> Any:
    """A mean written as a sum over 8,192 places by a count: the sum of numbers about 12 is 98,000."""
    torch.manual_seed(2404)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x).relu() + 12
        return m.o(y.sum(1) / 8192)

    return Net(body, a=linear(8, 16), o=linear(16, 4)), torch.randn(1, 8192, 8)


@case("", "formula", "torch_bf16", _names("mul", "add", most=70), f"{LOST} stepped found_by_repair drift update_lost "
      "reads_rounded", extra=_names("mul", "add", "select", "unbind", most=140))  # fmt: skip
def average_that_no_longer_moves_in_bfloat16() -> Any:
    """s + 0.004 x, sixty times: each step is below half of bfloat16's rounding of s, and s stays where it was."""
    torch.manual_seed(2405)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        s = m.start.expand(2, 32)
        for n in range(60):
            s = s + 0.004 * y[:, n % 8]
        return m.o(s - m.start)

    return Net(body, a=nn.Linear(32, 32), o=linear(32, 4, 4.0), start=torch.full((32,), 2.0)), tokens()


@case("", "underflow", "torch_fp16", names("rsub", "sub", "sigmoid", "log"), f"{LOST} underflow overflow born coarse",
      extra=names("rsub", "sub", "sigmoid", "log"))  # fmt: skip
def logarithm_of_one_less_a_sigmoid_in_half() -> Any:
    """log(1 - sigmoid(x)) with x up to 12: half's sigmoid is 1 from 8.4 on, and the logarithm -Infinity."""
    torch.manual_seed(2406)
    return Net(lambda m, x: (1 - m.a(x).sigmoid()).log(), a=linear(32, 8, 11.0)), tokens()


@case("", "healthy", "torch_autocast_bf16")
def six_blocks_under_autocast() -> Any:
    """Six blocks in bfloat16 under autocast: what its matrices cost."""
    return six_blocks_as_a_module()


@case("", "healthy", "torch_compile")
def module_of_bfloat16_compiled() -> Any:
    """Six blocks in bfloat16, compiled: the compiler keeps numbers in float32 between fused operators."""
    net, x = six_blocks_as_a_module()
    return net.bfloat16(), x.bfloat16()


# --- a module and the file that was made of it


_SHARE = names("mul", "softmax", "matmul", "_softmax") + " share score raw mixed"


@converted("convert", _SHARE, OTHER, extra=_SHARE, facts=[r"0\.17|0\.35|scale|factor"])
def scores_divided_by_the_root_of_the_whole_width() -> Any:
    """Scores of heads of eight are divided by the root of 32, the whole width, in the file."""
    torch.manual_seed(2407)

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x).unflatten(-1, (4, 8)).transpose(1, 2) for one in (m.q, m.k, m.v))
        return m.o(((q @ k.transpose(-1, -2) * 8**-0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))

    net = Net(body, q=linear(32, 32, 2.0), k=linear(32, 32, 2.0), v=linear(32, 32), o=linear(32, 8))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        import numpy as np

        split = g.weight("split", np.array([2, 8, 4, 8]))
        q, k, v = (g.op("Transpose", [g.op("Reshape", [fourteenth_torch._dense(g, x, w, one, one), split], f"{one}_4")],
                        f"{one}_h", perm=[0, 2, 3, 1] if one == "k" else [0, 2, 1, 3]) for one in "qkv")  # fmt: skip
        score = g.op("Mul", [g.op("MatMul", [q, k], "raw"), g.weight("factor", np.float32(32**-0.5))], "score")
        mixed = g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), v], "mixed")
        flat = g.op("Reshape", [g.op("Transpose", [mixed], "back", perm=[0, 2, 1, 3]),
                                g.weight("whole", np.array([2, 8, 32]))], "flat")  # fmt: skip
        return fourteenth_torch._dense(g, flat, w, "o", "y")

    return (net.eval(), tokens()), write


def kept(one: Thread) -> str:
    """How far a kept program is off its module, and a compiled module of bfloat16 off itself."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        target, base = Path(one.make(Path(folder))[0]), fifteenth_torch.BASES.get(one.name)
        module, x = globals()[base or one.name]()[:2]
        want = module(x).double()
        if one.mode == "torch_compile":
            got = torch.compile(module)(x)
        else:
            got = (torch.export.load(target).module() if target.suffix == ".pt2" else torch.jit.load(target))(x)
        return f"{one.name} ({one.mode}): off by {float((got.double() - want).norm() / want.norm()):.4g}"


def main() -> int:
    apart = [one for one in CASES if one.mode == "torch_compile" or (one.name not in BUILDS and
        fifteenth_torch.BASES.get(one.name))]  # fmt: skip
    for one in apart:
        if len(sys.argv) < 2 or any(word in one.name for word in sys.argv[1:]):
            print(kept(one), flush=True)
    twentyfirst_torch.CASES[:] = [one for one in CASES if one not in apart]
    twentyfirst_torch.BUILDS = BUILDS
    vars(twentyfirst_torch).update({one.name: globals()[one.name] for one in CASES})
    return twentyfirst_torch.main()


if __name__ == "__main__":
    raise SystemExit(main())
