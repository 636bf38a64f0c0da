"""A fifteenth batch of PyTorch: two checkpoints of which one was converted, exported files, autocast, narrow types,
the compiler, and training steps; written and labelled before any of it was compared.

    python tests/planted/fifteenth_torch.py [WORD …]

measures each label without the tool: the output's error (Rel L2) beside float64, and what is left of it where the
operator that is to be named is computed as it should be.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F
from torch import nn

from planted.eleventh_torch import layer, names
from planted.fourteenth_torch import _eight, _made, _ran, rel
from planted.shared import print_measured
from planted.tenth_torch import of_classes, step
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import COARSE, DIFFER, Thread, labelled

# After the first run, of rows' names that a label cannot know: where an optimiser's step ends ("sub"), and the loss's
# gradient. cast_that_the_compiler_takes_out had two statuses: it is 1, and said to be the target's gain.
CASES: list[Thread] = []
BASES: dict[str, str] = {}
LOST = "coarse cancellation cancels amplified drift long_reduction flips rounded_constant constant_rounded"
PORT, BACK, MOVE = "torch_fp32", ["--step", "backward"], ["--step", "optimiser"]


def _source(folder: Path, factory: str, module: str = "fifteenth_torch") -> str:
    """A user's own file, in which the factory is found."""
    file = folder / f"{factory}_model.py"
    path = f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    file.write_text(f"{path}from planted.{module} import *  # noqa\n")
    return f"{file}:{factory}"


def case(
    thread: str, kind: str, mode: str, who: str = "", why: str = "", base: str = "", file: str = "",
    cases: list[Thread] = CASES, module: str = "fifteenth_torch", **more: Any,
) -> Callable[..., Any]:  # fmt: skip
    """A factory of a module in a mode; base: the factory of the baseline, where there are two. file: how the target is
    kept, "traced", "frozen", "exported" or "apart" (an exported program taken apart). Of a narrow type a paste is
    due."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        def make(folder: Path) -> tuple[str, str | None, None]:
            target = _kept(folder, build, file) if file else _source(folder, build.__name__, module)
            return target, _source(folder, base, module) if base else None, None

        BASES[build.__name__] = base
        more.setdefault("fix", bool(who) and not base)
        known = "torch_fp32" if base else ""
        cases.append(labelled(build, thread, kind, mode, who, why, make=make, baseline=known, **more))
        return build

    return register


def _kept(folder: Path, build: Callable[..., Any], how: str) -> str:
    """The module as a file of TorchScript or torch.export. A third item of the factory is what it is traced with."""
    found = build()
    module, inputs = found[0], found[2] if len(found) > 2 else found[1]
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the tracer warns of what the case is about
        if how in ("exported", "apart"):
            program = torch.export.export(module, inputs)
            path = folder / f"{build.__name__}.pt2"
            torch.export.save(program.run_decompositions() if how == "apart" else program, path)
        else:
            traced = torch.jit.trace(module, inputs, check_trace=False)
            path = folder / f"{build.__name__}.ts"
            torch.jit.save(torch.jit.freeze(traced) if how == "frozen" else traced, path)
    return str(path)


# --- two checkpoints that should be one: the second is wrong


class Block(nn.Module):
    """A norm, two layers and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), linear(16, 32), linear(32, 16)
        with torch.no_grad():
            self.norm.weight.normal_(1, 0.2)
            self.up.bias.normal_()

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def _tower(change: Callable[[dict[str, Any]], None] | None = None, deep: int = 12, seed: int = 1501) -> Any:
    torch.manual_seed(seed)

    def body(m: Any, x: Any) -> Any:
        for one in m.blocks:
            x = one(x)
        return m.head(x)

    net = Net(body, blocks=nn.ModuleList(Block() for _ in range(deep)), head=linear(16, 4))
    if change is not None:
        weights = {name: one.clone() for name, one in net.state_dict().items()}
        change(weights)
        net.load_state_dict(weights)
    return net, tokens(16)


def _in_block(number: int) -> str:
    return f"blocks.{number}.norm blocks.{number}.norm/layer_norm blocks.{number}/add " + layer(
        f"blocks.{number}.up", f"blocks.{number}.down")  # fmt: skip


def tower_as_it_was_trained() -> Any:
    return _tower()


def _as_text(weights: dict[str, Any]) -> None:
    known = dict(weights)
    for number, one in enumerate(sorted(range(12), key=str)):
        for name in [name for name in known if name.startswith(f"blocks.{one}.")]:
            weights[name.replace(f".{one}.", f".{number}.", 1)] = known[name]


@case("converters that sort names", "port", PORT, _in_block(2), "files_differ", "tower_as_it_was_trained",
      extra=" ".join(map(_in_block, range(3, 12))), facts=[r"blocks\.10"])  # fmt: skip
def blocks_sorted_as_text() -> Any:
    """Twelve blocks were written in the order of their names as text: 0, 1, 10, 11, 2 …: the third is the eleventh."""
    return _tower(_as_text)


def _averaged(weights: dict[str, Any]) -> None:
    drawn = torch.Generator().manual_seed(15)
    for one in weights.values():
        one.add_(0.02 * one.abs().mean() * torch.randn(one.shape, generator=drawn))


@case("the live weights in place of their average", "port", PORT, _in_block(0) + " head/addmm", "files_differ",
      "tower_as_it_was_trained", extra=" ".join(map(_in_block, range(1, 12))) + " " + layer("head"),
      facts=[r"(all|62|each)"])  # fmt: skip
def checkpoint_of_the_average() -> Any:
    """The average of the weights beside the weights themselves: every one differs by two hundredths. No layer is to
    blame more than another."""
    return _tower(_averaged)


def _in_other_units(weights: dict[str, Any]) -> None:
    """The inner units of each block in another order, which changes nothing; and one block's last layer, which does."""
    order = torch.randperm(32, generator=torch.Generator().manual_seed(4))
    for number in range(4):
        front = f"blocks.{number}."
        for name in ("up.weight", "up.bias"):
            weights[front + name] = weights[front + name][order]
        weights[f"{front}down.weight"] = weights[f"{front}down.weight"][:, order]
    noise = torch.randn(16, 32, generator=torch.Generator().manual_seed(5))
    weights["blocks.2.down.weight"] += 0.1 * weights["blocks.2.down.weight"].std() * noise


def four_blocks() -> Any:
    return _tower(deep=4)


@case("pruning tools sort inner units", "port", PORT, layer("blocks.2.down") + " blocks.2/add", "files_differ",
      "four_blocks", extra=layer("blocks.2.down") + " blocks.2/add blocks.2/gelu")  # fmt: skip
def units_in_another_order_beside_a_stale_layer() -> Any:
    """All inner units are in another order, up and down alike, which changes nothing; the last layer of the third block
    is a tenth off. Blaming the first block's units is false."""
    return _tower(_in_other_units, deep=4)


def _normed(forgotten: bool) -> Any:
    torch.manual_seed(1502)
    net = Net(lambda m, x: m.c(F.relu(m.second(m.b(F.relu(m.first(m.a(x))))))), a=nn.Conv2d(3, 8, 3, padding=1),
              first=nn.BatchNorm2d(8), b=nn.Conv2d(8, 8, 3, padding=1), second=nn.BatchNorm2d(8),
              c=nn.Conv2d(8, 4, 1))  # fmt: skip
    for one in (net.first, net.second):
        one.running_mean.normal_().mul_(0.3)
        one.running_var.uniform_(0.2, 1.5)
    if forgotten:
        net.second.reset_running_stats()
    return net.eval(), image()


def statistics_of_both_norms() -> Any:
    return _normed(False)


@case("load_state_dict(strict=False)", "port", PORT,
      "second second/batch_norm second/native_batch_norm second/_native_batch_norm_legit_no_training", "files_differ",
      "statistics_of_both_norms", facts=[r"running_(mean|var)"])  # fmt: skip
def statistics_that_were_not_loaded() -> Any:
    """A converter kept parameters and no buffers: the second norm has a mean of 0 and a variance of 1."""
    return _normed(True)


@case("a norm's statistics, folded", "port", PORT, layer("b") + " b/conv2d b/convolution", DIFFER,
      "statistics_of_both_norms", extra=layer("b") + " b/conv2d b/convolution second second/batch_norm relu#2",
      facts=[r"(weight|running|norm|fold)"])  # fmt: skip
def statistics_of_an_earlier_epoch_in_a_convolution() -> Any:
    """The second norm was folded into its convolution with the statistics of an earlier epoch: weight and bias are of
    another scale in each channel. A bias alone is not what differs."""
    net, x = _normed(False)
    net.second.running_var.mul_(torch.linspace(0.3, 3.0, 8))
    net.b, net.second = nn.utils.fusion.fuse_conv_bn_eval(net.b, net.second), nn.Identity()
    return net, x


def _adapted(scale: float, merged: str = "") -> Any:
    torch.manual_seed(1503)
    down, up = linear(64, 4), linear(4, 64)

    def body(m: Any, x: Any) -> Any:
        y = m.wide(x)
        if not merged:
            y = y + m.up(m.down(x)) * m.scale
        return m.head(torch.tanh(y))

    wide, small = linear(64, 64), 0.02
    with torch.no_grad():
        for one in (down, up):
            one.bias.zero_()
        up.weight.mul_(small)
        if merged:
            change = scale * up.weight @ down.weight
            wide.weight.copy_((wide.weight.bfloat16() + change.bfloat16()).float() if merged == "low" else
                              wide.weight + change)  # fmt: skip
    parts = {} if merged else {"down": down, "up": up}
    return Net(body, wide=wide, head=linear(64, 8), scale=torch.tensor(scale), **parts), tokens(64)


def adapter_by_the_root_of_its_rank() -> Any:
    return _adapted(16.0 / 4**0.5)


@case("paiml/aprender#2189", "port", PORT, "mul", DIFFER, "adapter_by_the_root_of_its_rank",
      extra="mul add", facts=[r"scale"])  # fmt: skip
def adapter_by_its_rank() -> Any:
    """An adapter trained with alpha over the root of its rank (8) is served with alpha over its rank (4)."""
    return _adapted(16.0 / 4)


@case("huggingface/peft#1388", "port", PORT, layer("wide") + " add", "files_differ other_arithmetic unfound",
      "adapter_by_the_root_of_its_rank", extra=layer("wide") + " add tanh", facts=[r"bfloat16|rounded|wide\.weight"])
def adapter_merged_in_bfloat16() -> Any:
    """The adapter was added to weights of bfloat16, which rounds the whole weight; everything runs in float32. That the
    weights are another checkpoint's would be false."""
    return _adapted(16.0 / 4**0.5, "low")


def _tied(tied: bool) -> Any:
    torch.manual_seed(1504)
    table = nn.Embedding(40, 32)

    def body(m: Any, ids: Any) -> Any:
        y = m.norm(torch.tanh(m.a(m.table(ids))))
        return F.linear(y, m.table.weight if tied else m.out)

    parts = {} if tied else {"out": nn.Parameter(table.weight.detach().clone())}
    return Net(body, table=table, a=linear(32, 32), norm=nn.LayerNorm(32), **parts), torch.randint(0, 40, (2, 8))


def table_that_is_read_twice() -> Any:
    return _tied(True)


@case("tied weights written twice", "healthy", PORT, base="table_that_is_read_twice")
def table_beside_its_copy() -> Any:
    """What was one table in the trainer is two equal tensors in the served model."""
    return _tied(False)


def _stemmed(turned: bool) -> Any:
    torch.manual_seed(1505)
    net = Net(lambda m, x: m.b(F.relu(m.a(x))), a=nn.Conv2d(3, 8, 3, padding=1), b=nn.Conv2d(8, 4, 1))
    if turned:
        with torch.no_grad():
            net.a.weight.copy_(net.a.weight.flip(1))
    return net, image()


def stem_for_red_green_blue() -> Any:
    return _stemmed(False)


@case("BGR and RGB", "port", PORT, "a a/conv2d a/convolution", "files_differ", "stem_for_red_green_blue",
      facts=[r"revers|order|flip|axis 1|exchang"])  # fmt: skip
def stem_for_blue_green_red() -> Any:
    """The first layer's input channels are in reverse order: weights of a model that reads BGR."""
    return _stemmed(True)


def _scored(twice: bool) -> Any:
    torch.manual_seed(1506)

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x).view(2, 8, 4, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        y = F.scaled_dot_product_attention(q * 8**-0.5 if twice else q, k, v)
        return m.o(y.transpose(1, 2).reshape(2, 8, 32))

    return Net(body, q=linear(32, 32, 2.0), k=linear(32, 32, 2.0), v=linear(32, 32), o=linear(32, 8)), tokens()


def scores_scaled_by_the_kernel() -> Any:
    return _scored(False)


_FUSED = "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu"


@case("scale twice, in q and in the kernel", "port", PORT, f"{_FUSED} mul", f"{DIFFER} unfound",
      "scores_scaled_by_the_kernel", extra=f"{_FUSED} mul")  # fmt: skip
def scores_scaled_twice() -> Any:
    """The query is divided by the root of the width, and the kernel divides once more."""
    return _scored(True)


def _turned(last: bool) -> Any:
    torch.manual_seed(1507)
    rate = 10000.0 ** (-torch.arange(4) / 4)
    angle = torch.arange(8)[:, None] * rate

    def rotate(m: Any, x: Any) -> Any:
        part, rest = (x[..., 8:], x[..., :8]) if last else (x[..., :8], x[..., 8:])
        a, b = part.chunk(2, -1)
        done = torch.cat([a * m.cos - b * m.sin, b * m.cos + a * m.sin], -1)
        return torch.cat([rest, done] if last else [done, rest], -1)

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x) for one in (m.q, m.k, m.v))
        return m.o(((rotate(m, q) @ rotate(m, k).transpose(1, 2)) / 4).softmax(-1) @ v)

    return Net(body, q=linear(32, 16, 2.0), k=linear(32, 16, 2.0), v=linear(32, 16), o=linear(16, 8), cos=angle.cos(),
               sin=angle.sin()), tokens()  # fmt: skip


def rotation_of_the_first_half() -> Any:
    return _turned(False)


_CUT = names("slice", "split", "split_with_sizes", "cat", "mul", "sub", "add", "transpose", "div", most=10)


@case("partial rotary, which part", "port", PORT, _CUT, f"{DIFFER} unfound", "rotation_of_the_first_half",
      extra=_CUT)  # fmt: skip
def rotation_of_the_last_half() -> Any:
    """A rotation of half a head's width turns the last eight numbers in place of the first."""
    return _turned(True)


# --- kept files


def _branching() -> Any:
    torch.manual_seed(1510)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        if y.mean() > 0:
            y = y * 3.0
        return m.b(torch.tanh(y))

    net = Net(body, a=linear(16, 16), b=linear(16, 4))
    return net, _sloped(net, -1.0), _sloped(net, 1.0)


def _sloped(net: Any, sign: float) -> Any:
    """An input whose mean behind the first layer has this sign."""
    drawn = torch.Generator().manual_seed(9)
    with torch.no_grad():
        while float(net.a(x := torch.randn(6, 16, generator=drawn)).mean()) * sign < 0.01:
            pass
    return x


def branch_by_its_input() -> Any:
    return _branching()[:2]


@case("pytorch/pytorch#21774", "port", PORT, "mul mul#1 b/linear b b/addmm tanh", f"{DIFFER} unfound",
      "branch_by_its_input", file="traced", extra="mul tanh " + layer("a", "b"), facts=[r"mul"])  # fmt: skip
def branch_that_the_trace_took() -> Any:
    """Traced with an input that takes the branch; this input does not: the file multiplies by 3 whatever comes."""
    return _branching()


def _trained(on: bool) -> Any:
    torch.manual_seed(1511)
    net = Net(lambda m, x: m.b(F.relu(m.norm(m.a(x)))), a=nn.Conv2d(3, 8, 3), norm=nn.BatchNorm2d(8),
              b=nn.Conv2d(8, 4, 1))  # fmt: skip
    net.norm.running_mean.normal_()
    net.norm.running_var.uniform_(0.5, 3.0)
    return net.train(on), image()


def norm_of_an_evaluated_module() -> Any:
    return _trained(False)


@case("pytorch/pytorch#71929", "port", PORT, "norm norm/batch_norm norm/native_batch_norm batch_norm relu",
      f"{DIFFER} unfound", "norm_of_an_evaluated_module", file="traced", extra="norm/batch_norm relu")  # fmt: skip
def traced_in_training() -> Any:
    """The module was traced before eval(): the file normalises by the batch's own statistics."""
    return _trained(True)


@case("libtorch deployments", "healthy", PORT, base="norm_of_an_evaluated_module", file="frozen")
def frozen_script() -> Any:
    """Traced, frozen: the norm's parameters are constants of the file."""
    return _trained(False)


@case("old files", "port", PORT, layer("head", "linear_24", "linear_8") + " linear_24 linear_8", "files_differ",
      "four_blocks", file="exported", extra=layer("head"), facts=[r"head\.weight"])  # fmt: skip
def exported_before_the_last_epoch() -> Any:
    """The exported program is one epoch older: only the last layer was trained in it, whose weight is 3 % off."""
    net, x = _tower(deep=4)
    with torch.no_grad():
        net.head.weight.mul_(1 + 0.03 * torch.randn(4, 16, generator=torch.Generator().manual_seed(3)))
    return net, x


@case("run_decompositions", "healthy", PORT, base="four_blocks", file="apart")
def program_taken_apart() -> Any:
    """The exported program with its decompositions: layer norm and gelu are smaller operators."""
    return _tower(deep=4)


# --- one module in a narrow type


def _slope(m: Any, x: Any) -> Any:
    q, k, v = m.q(x), m.k(x), m.v(x)
    at = torch.arange(x.shape[1], dtype=x.dtype) if m.low else torch.arange(x.shape[1]).float()
    bias = 0.5 * at[None, None]
    score = q @ k.transpose(1, 2) / 4
    score = score + bias if m.low else score.float() + bias
    score = score.masked_fill(m.hidden, float("-inf"))
    return m.o(score.softmax(-1).to(x.dtype) @ v)


_SLOPED = "add mul arange bmm baddbmm matmul " + names("add", "mul", "arange", "masked_fill", "softmax", "_to_copy")


@case("bigscience BLOOM's ALiBi in bfloat16", "cancellation", "torch_bf16", "add add#1 mul arange", LOST,
      extra=_SLOPED)  # fmt: skip
def slope_that_swallows_the_scores(mended: bool = False) -> Any:
    """BLOOM's slope counts from the first place: at the 1500th the bias is 750, where bfloat16 knows every fourth
    number, and scores of 1 are lost."""
    torch.manual_seed(1520)
    hidden = torch.ones(1500, 1500, dtype=torch.bool).triu(1)
    net = Net(_slope, q=linear(16, 16, 2.0), k=linear(16, 16, 2.0), v=linear(16, 16), o=linear(16, 4), hidden=hidden)
    net.low = not mended
    return net, torch.randn(1, 1500, 16)


@case("the k3 estimator of RL libraries", "cancellation", "torch_bf16",
      names("sub", "log_softmax", "gather", "exp", "add"), LOST,
      extra=names("sub", "log_softmax", "gather", "exp", "add", "mul") + layer("new", "old"))  # fmt: skip
def ratio_of_two_near_policies(mended: bool = False) -> Any:
    """exp(d) - d - 1 of two log-probabilities of -8 that are 0.05 apart: each is rounded to 0.03, and 1 to 1."""

    def body(m: Any, x: Any) -> Any:
        new, old = m.new(x), m.old(x)
        if mended:
            new, old = new.float(), old.float()
        new, old = (F.log_softmax(one, -1).gather(-1, m.of) for one in (new, old))
        d = old - new
        return (d.exp() - d - 1).squeeze(-1)

    torch.manual_seed(1521)
    new, old = linear(32, 2000), linear(32, 2000)
    old.load_state_dict(new.state_dict())
    with torch.no_grad():
        old.weight.add_(0.03 * torch.randn(2000, 32) / 32**0.5)
    return Net(body, new=new, old=old, of=torch.randint(0, 2000, (64, 1))), torch.randn(64, 32)


@case("targets of tabular models", "overflow", "torch_autocast_fp16", layer("a"),
      "weight_overflow overflow infinite_constant", extra=layer("a") + " sub a/to", offered=True)  # fmt: skip
def bias_of_a_hundred_thousand(mended: bool = False) -> Any:
    """A layer adds a price's mean of 1e5, which the next operator takes off: the bias is infinite in float16."""

    def body(m: Any, x: Any) -> Any:
        with torch.autocast("cpu", enabled=False) if mended else torch.no_grad():
            y = m.a(x)
        return m.b(torch.tanh(((y if y.dtype == torch.float64 else y.float()) - 1e5) * 0.5))

    torch.manual_seed(1522)
    a = linear(16, 32)
    with torch.no_grad():
        a.bias.fill_(1e5)
    return Net(body, a=a, b=linear(32, 4)), torch.randn(24, 16)


@case("masked means in half", "overflow", "torch_fp16", names("sum"), "overflow", extra=names("sum", "div", "mul"),
      offered=True)  # fmt: skip
def mean_over_too_many(mended: bool = False) -> Any:
    """70000 valid points are counted by the sum of a mask in float16: infinite, and the mean is 0, finite again."""

    def body(m: Any, x: Any, valid: Any) -> Any:
        count = valid.float().sum(1, keepdim=True) if mended else valid.sum(1, keepdim=True)
        return m.b(torch.tanh((m.a(x) * valid[..., None]).sum(1) / count).to(x.dtype))

    torch.manual_seed(1523)
    valid = torch.ones(1, 70000)
    valid[:, 69000:] = 0
    return Net(body, a=linear(4, 8), b=linear(8, 4)), (torch.randn(1, 70000, 4), valid)


@case("autocast's list of float32", "healthy", "torch_autocast_bf16")
def distances_that_autocast_keeps() -> Any:
    """Distances of given points, a running product and a norm: autocast keeps all of them in float32."""

    def body(m: Any, x: Any, y: Any) -> Any:
        far = torch.cdist(x + 40, y + 40)
        return m.a(torch.tanh(far) + far.sigmoid().cumprod(-1)), far.norm(dim=-1)

    torch.manual_seed(1524)
    return Net(body, a=linear(12, 4)), (torch.randn(2, 10, 6), torch.randn(2, 12, 6))


@case("pytorch/pytorch#181568", "port", "torch_compile", names("to", "_to_copy", "add", "sub", "mul") + " output",
      "fewer_roundings", fix=False,
      extra=names("to", "_to_copy", "add", "sub", "mul") + layer("a", "b"))  # fmt: skip
def cast_that_the_compiler_takes_out() -> Any:
    """A float32 module rounds to bfloat16 in between and takes a level off; the compiler may leave the rounding out,
    which is nearer the truth. That the compiler computes something wrong is false."""

    def body(m: Any, x: Any) -> Any:
        y = (m.a(x) + 8).bfloat16().float() + m.c
        return m.b(torch.tanh(y - 8))

    torch.manual_seed(1525)
    return Net(body, a=linear(16, 32), c=torch.randn(32) * 0.1, b=linear(32, 4)), torch.randn(24, 16)


@case("pytorch/pytorch#182225", "healthy", "torch_compile")
def rotation_in_bfloat16() -> Any:
    """A rotation of queries and keys, all in bfloat16, compiled: eager rounds in between, both are as far off."""

    def half(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat([-b, a], -1)

    def body(m: Any, q: Any, k: Any) -> Any:
        return q * m.cos + half(q) * m.sin, k * m.cos + half(k) * m.sin

    torch.manual_seed(1526)
    net = Net(body, cos=torch.randn(1, 1, 7, 16), sin=torch.randn(1, 1, 7, 16)).bfloat16()
    return net, (torch.randn(1, 2, 7, 16).bfloat16(), torch.randn(1, 1, 7, 16).bfloat16())


@case("int8 weights by row", "int8", "torch_int8", layer("b") + " b/view#2", f"{COARSE} packed constant_scale",
      extra=layer("b") + " b/view#2", offered=True)  # fmt: skip
def weight_that_takes_its_row_s_range(mended: bool = False) -> Any:
    """Each row of a weight has one number of 60, of a feature that is all but 0: the row's others become 0 in 8 bits.
    The activations have no outlier."""
    torch.manual_seed(1527)
    b = linear(64, 64)
    with torch.no_grad():
        b.weight[:, 5] = 60.0 * torch.sign(torch.randn(64))
    size = torch.ones(64)
    size[5] = 1e-4
    return Net(lambda m, x: m.c(torch.tanh(m.b(torch.tanh(m.a(x)) * m.size))), a=linear(32, 64), b=b, c=linear(64, 8),
               size=size), tokens(length=16)  # fmt: skip


@case("padding in a quantised batch", "healthy", "torch_int8")
def empty_rows_in_eight_bits() -> Any:
    """A third of the tokens is padding and all 0: their range is 0, and they stay 0."""
    torch.manual_seed(1528)
    x = tokens(length=18)
    x[:, 12:] = 0
    a, b = linear(32, 64), linear(64, 64)
    with torch.no_grad():
        a.bias.zero_()
    return Net(lambda m, x: m.c(F.relu(m.b(F.relu(m.a(x))))), a=a, b=b, c=linear(64, 8)), x


# --- training steps


def _divided(by: float) -> Any:
    return step(lambda m, x: m.b(torch.tanh(m.a(x))), lambda out: of_classes(out) / by, a=lambda: linear(16, 16),
                b=lambda: linear(16, 4))  # fmt: skip


def loss_of_four_pieces() -> Any:
    return _divided(4.0)


_DIV = names("div", "loss", "backward/div", "backward/div/div", "nll_loss", "cross_entropy", "backward/div/mul")


@case("accumulated losses", "training", PORT, _DIV, f"{DIFFER} unfound", "loss_of_four_pieces", options=BACK,
      extra=_DIV, facts=[r"4|16"])  # fmt: skip
def loss_that_is_divided_once_more() -> Any:
    """The loss is divided by the pieces that are accumulated, which the trainer had done already: 16 in place of 4."""
    return _divided(16.0)


def _smoothed(by: float) -> Any:
    def loss(out: Any) -> Any:
        return F.cross_entropy(out.float(), torch.arange(len(out)) % 4, label_smoothing=by)

    return step(lambda m, x: m.b(torch.tanh(m.a(x))), loss, a=lambda: linear(16, 16), b=lambda: linear(16, 4))


def labels_as_they_are() -> Any:
    return _smoothed(0.0)


_CE = names("nll_loss", "nll_loss_forward", "cross_entropy", "cross_entropy_loss", "log_softmax") + " loss"


_CE_BACK = "backward/nll_loss_forward/nll_loss_backward"


@case("label smoothing", "training", PORT, _CE, f"{DIFFER} unfound", "labels_as_they_are", options=BACK,
      extra=f"{_CE} {_CE_BACK} " + names("mul", "sum", "mean", "neg", "add", "div"))  # fmt: skip
def labels_that_are_smoothed() -> Any:
    """label_smoothing is 0.1 in one trainer and 0 in the other."""
    return _smoothed(0.1)


def _moved(optimiser: Callable[[Any], Any]) -> Any:
    return step(lambda m, x: m.b(torch.tanh(m.a(x))), of_classes, optimiser, a=lambda: linear(16, 16),
                b=lambda: linear(16, 4))  # fmt: skip


def decay_beside_the_gradient() -> Any:
    return _moved(lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.5))


_OF = ("a.weight", "a.bias", "b.weight", "b.bias")
_UPDATE = " ".join(f"{front}/{of}{part}{n}" for front in ("update", "optimiser") for of in _OF for n in
                   ("", "#1", "#2") for part in ("", "/add", "/add_", "/mul", "/mul_", "/lerp", "/lerp_", "/addcmul",
                                                 "/addcmul_", "/addcdiv", "/div", "/sub", "/sqrt"))  # fmt: skip


@case("Adam's weight_decay is not AdamW's", "training", PORT, _UPDATE, f"{DIFFER} unfound", "decay_beside_the_gradient",
      options=MOVE, extra=_UPDATE)  # fmt: skip
def decay_inside_the_gradient() -> Any:
    """Adam in place of AdamW: the decay is added to the gradient, whose size Adam takes out again."""
    return _moved(lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.5))


def momentum_as_it_is() -> Any:
    return _moved(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


@case("nesterov", "training", PORT, _UPDATE, f"{DIFFER} unfound", "momentum_as_it_is", options=MOVE,
      extra=_UPDATE)  # fmt: skip
def momentum_that_looks_ahead() -> Any:
    """Nesterov's momentum in one trainer alone: the first step is 1.9 times as long."""
    return _moved(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))


def optimiser_of_all_at_once() -> Any:
    return _moved(lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True))


@case("foreach", "healthy", PORT, base="optimiser_of_all_at_once", options=MOVE)
def optimiser_for_each() -> Any:
    """AdamW one parameter after the other, beside AdamW of all at once."""
    return _moved(lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False))


# --- what is so, without the tool


def measure(one: Thread, found: Mapping[str, Any] | None = None) -> tuple[float, float]:
    """The error of what is planted, and what mending it leaves; of two modules both in float64, where 0 is left.
    found: the names of the batch's module."""
    found = globals() if found is None else found
    build = found[one.name]
    if one.baseline:
        pair = (found[BASES[one.name]], build)
        moves = "optimiser" in one.options
        made = [_made(of) for of in pair]
        if one.name == "branch_that_the_trace_took":
            with torch.no_grad():
                x, net = made[0][1][0].double(), made[0][0].double()
                return rel(net(x), net.b(torch.tanh(net.a(x) * 3))), 0.0
        if "backward" not in one.options and not moves:
            made = [(*each[:2], None) for each in made]
        of = [pair[n]()[3] if moves else None for n in range(2)]
        return rel(*(_ran(made[n], torch.float64, False, of[n]) for n in range(2))), 0.0
    mended = {"mended": True} if "mended" in inspect.signature(build).parameters else {}
    dtype, autocast = torch.float16 if "fp16" in one.mode else torch.bfloat16, "autocast" in one.mode
    true = _flat(_ran_all(build, torch.float64))
    if one.mode == "torch_int8":
        left = ("b",) if mended else ()
        return tuple(rel(true, _ran(_eight(_made(build), which), torch.float32)) for which in ((), left))  # type: ignore[return-value]
    if one.mode == "torch_compile":
        own = next((p.dtype for p in build()[0].parameters()), torch.bfloat16)
        return rel(true, _flat(_ran_all(build, own))), 0.0
    return tuple(rel(true, _flat(_ran_all(build, dtype, autocast, **more))) for more in ({}, mended))  # type: ignore[return-value]


def _ran_all(build: Callable[..., Any], dtype: Any, autocast: bool = False, **more: Any) -> Any:
    module, inputs, _ = _made(build, **more)
    if not autocast:
        module, inputs = module.to(dtype), [one.to(dtype) if one.is_floating_point() else one for one in inputs]
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast):
        return module(*inputs)


def _flat(found: Any) -> Any:
    return torch.cat([one.double().flatten() for one in (found if isinstance(found, tuple) else (found,))])


if __name__ == "__main__":
    print_measured(CASES, measure)
