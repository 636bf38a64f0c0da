"""Unseen faults and clean models in PyTorch, and in Python objects that are compared where they live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from planted.torch_faults import Body, Net, image, linear, tokens
from planted.unseen import Unseen

CASES: list[Unseen] = []


def unseen(
    kind: str, modes: str, who: str = "", why: str = "", *, status: int | None = None, cases: list[Unseen] = CASES,
    base: str = "", level: str = "", baseline: str = "", **more: Any,
) -> Callable[[Body], Body]:  # fmt: skip
    """Register a factory once for each mode. base: the factory of the baseline, where the two differ."""

    def register(build: Body) -> Body:
        module = Path(build.__code__.co_filename)
        for mode in modes.split():

            def make(folder: Path) -> tuple[str, str | None, None]:
                file = folder / f"{build.__name__}_model.py"  # beside which nothing else can be imported
                path = f"import sys\n\nsys.path.insert(0, {str(module.parents[1])!r})\n"
                file.write_text(f"{path}from planted.{module.stem} import *  # noqa\n")
                return f"{file}:{build.__name__}", f"{file}:{base}" if base else None, None

            cases.append(
                Unseen(
                    name=build.__name__ + ("_by_module" if level else ""), kind=kind, mode=mode, make=make,
                    who=tuple(who.split()), why=tuple(why.split()), baseline=baseline or ("torch_fp32" if base else ""),
                    status=int(bool(who)) if status is None else status,
                    options=["--level", level] if level else [], **more,
                )
            )  # fmt: skip
        return build

    return register


def changed(base: Body, path: str, edit: Callable[[Any], Any]) -> Any:
    """A model whose parameter, buffer or attribute at a path is edited in place."""
    module, inputs = base()
    with torch.no_grad():
        owner, _, name = path.rpartition(".")
        parent = module.get_submodule(owner)
        new = edit(getattr(parent, name))
        if new is not None:
            setattr(parent, name, new)
    return module, inputs


# --- overflow and underflow


def moe(up: float = 1.0, offset: float = 0.0, skip: float = 1.0) -> Any:
    """Routing to the best of four experts."""

    def body(m: Any, x: Any) -> Any:
        weight, which = (m.router(x) + offset).softmax(-1).max(-1)
        parts = torch.stack([down(F.silu(one(x))) for one, down in zip(m.ups, m.downs, strict=True)], 1)
        return skip * x + weight[:, None] * parts.gather(1, which[:, None, None].expand(-1, 1, 32)).squeeze(1)

    ups = nn.ModuleList(linear(32, 64, up) for _ in range(4))
    downs = nn.ModuleList(linear(64, 32, 1 / up) for _ in range(4))
    return Net(body, router=linear(32, 4), ups=ups, downs=downs), torch.randn(24, 32)


@unseen("overflow", "torch_fp16 torch_autocast_fp16", "ups.0/addmm ups.1/addmm ups.2/addmm ups.3/addmm", "overflow")
def expert_overflow() -> Any:
    return moe(1.2e5)


@unseen("overflow", "torch_fp16", "attention/baddbmm bmm mul", "overflow")
def logits_of_a_bilinear_form() -> Any:
    def body(m: Any, x: Any) -> Any:
        score = torch.bmm(m.q(x), m.k(x).transpose(1, 2)) * 1e-6
        return torch.softmax(score, -1) @ m.v(x)

    return Net(body, q=linear(32, 32, 700.0), k=linear(32, 32, 700.0), v=linear(32, 32)), tokens(length=6)


@unseen("overflow", "torch_fp16", "cumsum", "overflow")
def long_cumulative_sum() -> Any:
    def body(m: Any, x: Any) -> Any:
        total = torch.cumsum(x.abs() * 100 + 50, 1)
        return m.a(total / total[:, -1:])

    return Net(body, a=linear(4, 4)), torch.randn(2, 1200, 4)


@unseen("overflow", "torch_fp16", "rsqrt reciprocal div", "overflow", level="")
def inverse_of_tiny_deviation() -> Any:
    def body(m: Any, x: Any) -> Any:
        small = m.a(x) * 1e-3
        inverse = torch.reciprocal(small.abs() * 1e-2 + 1e-6)
        return m.b(torch.log(inverse))

    return Net(body, a=linear(32, 32), b=linear(32, 8)), tokens()


@unseen("overflow", "torch_fp16", "conv2", "overflow weight_overflow", level="module")
def residual_net_by_module() -> Any:
    def body(m: Any, x: Any) -> Any:
        x = torch.relu(m.conv1(x))
        return m.head(m.bn(m.conv2(x)).mean((2, 3)))

    parts = {"conv1": nn.Conv2d(3, 8, 3), "conv2": nn.Conv2d(8, 8, 3), "bn": nn.BatchNorm2d(8), "head": nn.Linear(8, 4)}
    net = Net(body, **parts)
    with torch.no_grad():
        net.conv2.weight.mul_(6e5)
        net.bn.running_var.fill_(6e4)
    return net, image()


@unseen("underflow", "torch_fp16", "mul mul#2 prod", "underflow")
def likelihood_of_a_sequence() -> Any:
    def body(m: Any, x: Any) -> Any:
        p = torch.softmax(m.a(x), -1).amax(-1)
        return torch.log(p.prod(-1) * 1e-2)

    return Net(body, a=linear(32, 12)), tokens(length=10)


@unseen("underflow", "torch_fp16", "mul", "underflow weight_underflow")
def gradient_of_a_tiny_step() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b((m.a(x) * 3e-8) * 3e7)

    return Net(body, a=linear(32, 32), b=linear(32, 8)), tokens()


@unseen("weight_underflow", "torch_fp16", "add div clamp sum clamp_min", "weight_underflow underflow born")
def pooling_of_padding() -> Any:
    def body(m: Any, x: Any, keep: Any) -> Any:
        return (m.a(x) * keep).sum(1) / keep.sum(1).clamp(min=1e-9)

    keep = torch.ones(2, 8, 1)
    keep[1] = 0
    return Net(body, a=linear(32, 8)), (tokens(), keep)


# --- cancellation, amplification, decisions


@unseen("cancellation", "torch_bf16", "add", "cancellation amplified")
def residual_offset_before_a_norm() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(m.norm(m.a(x) + 500.0))

    return Net(body, a=linear(32, 32), norm=nn.LayerNorm(32), b=linear(32, 8)), tokens()


@unseen("cancellation", "torch_fp16", "mul mul#1 mul#2 pow mean mean#2 sub add", "cancellation amplified born")
def instance_variance_in_one_pass() -> Any:
    def body(m: Any, x: Any) -> Any:
        x = m.c(x) + 25.0
        mean = x.mean((2, 3), keepdim=True)
        var = (x * x).mean((2, 3), keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(var.clamp(min=1e-2))

    return Net(body, c=nn.Conv2d(3, 8, 3)), image()


@unseen("amplified", "torch_bf16", "exp sigmoid mul", "amplified cancellation")
def selective_scan() -> Any:
    """Mamba-like: a decay near 1 applied in each of many steps."""

    def body(m: Any, x: Any) -> Any:
        decay = torch.exp(-torch.sigmoid(m.dt(x[:, 0])) * 3e-3)
        state = m.b(x[:, 0])
        for _ in range(300):
            state = state * decay
        return m.c(state)

    return Net(body, dt=linear(16, 16), b=linear(16, 16), c=linear(16, 4)), torch.randn(2, 4, 16)


@unseen("amplified", "torch_bf16 torch_fp16", "mul", "amplified cancellation")
def large_rotary_positions() -> Any:
    def body(m: Any, x: Any, pos: Any) -> Any:
        angle = pos[:, None] * m.freq
        a, b = m.q(x).chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    freq = 10000.0 ** -(torch.arange(16) / 16)
    return Net(body, freq=freq, q=linear(32, 32)), (torch.randn(10, 32), torch.arange(3001.0, 3011.0))


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("mul", "args_1", "pos")})
CASES[-2] = CASES[-2].__class__(**{**CASES[-2].__dict__, "who": ("mul", "args_1", "pos")})


@unseen("decision", "torch_bf16", "add", "amplified cancellation coarse flips")
def router_with_an_offset() -> Any:
    return moe(offset=300.0, skip=0.0)


@unseen("decision", "torch_fp16", "sigmoid", "amplified cancellation coarse flips")
def best_of_saturated_scores() -> Any:
    def body(m: Any, x: Any) -> Any:
        score = torch.sigmoid(m.a(x) + 9.0)
        return m.boxes[score.topk(3, -1).indices]

    return Net(body, a=linear(32, 50), boxes=torch.randn(50, 4)), torch.randn(8, 32)


@unseen("clean", "torch_bf16 torch_autocast_bf16", status=1)  # what draws numbers without a seed proves nothing
def dropout_that_eval_does_not_stop() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(F.dropout(m.a(x), 0.3, training=True))

    return Net(body, a=linear(32, 32), b=linear(32, 8)), tokens()


@unseen("clean", "torch_fp16", status=1)  # what draws numbers without a seed proves nothing
def noise_of_a_latent() -> Any:
    def body(m: Any, x: Any) -> Any:
        mean, log = m.a(x).chunk(2, -1)
        return m.b(mean + torch.randn_like(mean) * log.exp())

    return Net(body, a=linear(32, 16), b=linear(8, 8)), tokens()


# --- two models


def gpt() -> Any:
    import transformers

    config = transformers.GPT2Config(vocab_size=60, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    return transformers.GPT2LMHeadModel(config).eval(), {"input_ids": torch.randint(0, 60, (2, 10))}


def unet() -> Any:
    def body(m: Any, x: Any) -> Any:
        a = F.silu(m.n1(m.c1(x)))
        b = F.interpolate(F.silu(m.n2(m.c2(F.max_pool2d(a, 2)))), scale_factor=2, mode="nearest")
        return m.c3(torch.cat([a, b], 1))

    return Net(
        body, c1=nn.Conv2d(3, 8, 3, padding=1), n1=nn.GroupNorm(2, 8), c2=nn.Conv2d(8, 8, 3, padding=1),
        n2=nn.GroupNorm(2, 8), c3=nn.Conv2d(16, 3, 3, padding=1),
    ), image()  # fmt: skip


def gru() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.out(m.rnn(x)[0])

    return Net(body, rnn=nn.GRU(16, 24, batch_first=True), out=linear(24, 8)), tokens(16)


def detr() -> Any:
    """A decoder layer whose queries attend to a memory."""

    def body(m: Any, x: Any) -> Any:
        return m.head(m.layer(m.queries.expand(2, -1, -1), x)).sigmoid()

    layer = nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return Net(body, layer=layer, queries=nn.Parameter(torch.randn(1, 5, 32)), head=linear(32, 4)), tokens()


@unseen("files", "torch_fp32", "transformer.h.1.mlp.c_proj/addmm", "files_differ", base="gpt")
def gpt_projection_transposed() -> Any:
    return changed(gpt, "transformer.h.1.mlp.c_proj.weight", lambda w: (w[:32].copy_(w[:32].t().clone()), None)[1])


@unseen("files", "torch_fp32", "transformer.h.0.ln_1/native_layer_norm transformer.h.0.ln_1/layer_norm", "files_differ",
        base="gpt")  # fmt: skip
def gpt_epsilon() -> Any:
    return changed(gpt, "transformer.h.0.ln_1.eps", lambda e: 0.05)


@unseen("files", "torch_fp32", "transformer.wpe/embedding", "files_differ", base="gpt")
def gpt_positions_shifted() -> Any:
    return changed(gpt, "transformer.wpe.weight", lambda w: (w.copy_(w.roll(1, 0).clone()), None)[1])


@unseen("files", "torch_fp32", "n2/group_norm n2/native_group_norm", "files_differ", base="unet")
def unet_norm_gain() -> Any:
    return changed(unet, "n2.weight", lambda w: (w[3:5].fill_(0.4), None)[1])


@unseen("files", "torch_fp32", "n1/group_norm n1/native_group_norm", "files_differ", base="unet")
def unet_groups() -> Any:
    return changed(unet, "n1.num_groups", lambda n: 4)


@unseen("files", "torch_fp32", "rnn/gru rnn/gru/mm rnn", "files_differ", base="gru")
def gru_gates_swapped() -> Any:
    return changed(gru, "rnn.weight_ih_l0", lambda w: (w.copy_(torch.cat([w[24:48], w[:24], w[48:]])), None)[1])


@unseen(
    "files", "torch_fp32", "layer.multihead_attn[0] layer.multihead_attn", "files_differ", base="detr", level="module"
)
def detr_memory_bias() -> Any:
    return changed(detr, "layer.multihead_attn.in_proj_bias", lambda b: (b[64:80].fill_(1.0), None)[1])


@unseen(
    "files",
    "torch_fp32",
    "div mul bernoulli b/view b/addmm",
    "files_differ random other_arithmetic",
    base="dropout_off",
)
def dropout_on() -> Any:
    module, inputs = dropout_off()
    module.forced = True
    return module, inputs


def dropout_off() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(F.dropout(m.a(x), 0.4, training=m.forced))

    net = Net(body, a=linear(32, 32), b=linear(32, 8))
    net.forced = False
    return net, tokens()


# --- clean


@unseen("clean", "torch_bf16 torch_fp16 torch_autocast_bf16 torch_compile")
def clean_gpt() -> Any:
    return gpt()


@unseen("clean", "torch_bf16 torch_fp16 torch_compile")
def clean_unet() -> Any:
    return unet()


@unseen("clean", "torch_bf16 torch_fp16")
def clean_detr() -> Any:
    return detr()


@unseen("clean", "torch_bf16 torch_fp16")
def clean_gru() -> Any:
    return gru()


@unseen("clean", "torch_int8")
def clean_tabular() -> Any:
    def body(m: Any, ids: Any, x: Any) -> Any:
        return m.b(torch.relu(m.a(torch.cat([m.e(ids).flatten(1), x], 1))))

    return Net(body, e=nn.Embedding(20, 8), a=linear(32, 64), b=linear(64, 3)), (
        torch.randint(0, 20, (6, 2)), torch.randn(6, 16))  # fmt: skip


@unseen("clean", "torch_bf16 torch_fp16 torch_autocast_bf16")
def clean_spectrum() -> Any:
    def body(m: Any, x: Any) -> Any:
        power = (x.unfold(-1, 64, 32) @ m.cos).square() + (x.unfold(-1, 64, 32) @ m.sin).square()
        return m.head(torch.log1p(power))

    turn = torch.outer(torch.arange(64), torch.arange(33)) * 2 * torch.pi / 64
    return Net(body, cos=turn.cos(), sin=turn.sin(), head=linear(33, 8)), torch.randn(2, 512) * 0.1


@unseen("clean", "torch_fp16 torch_bf16")
def clean_zeros() -> Any:
    module, _ = moe()
    return module, torch.zeros(24, 32)


@unseen("benign", "torch_fp16")
def overflow_behind_a_relu6() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(F.relu6(m.a(x)))

    return Net(body, a=linear(32, 32, 3e5), b=linear(32, 8)), tokens()


@unseen("benign", "torch_fp16")
def overflow_that_where_leaves_out() -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        return torch.where(y < 100, y, torch.exp(y * 20))

    return Net(body, a=linear(32, 8)), tokens()


@unseen("baseline", "torch_bf16", says="nan", status=1)
def logarithm_of_negative_numbers() -> Any:
    def body(m: Any, x: Any) -> Any:
        return torch.log(m.a(x))

    return Net(body, a=linear(32, 8)), tokens()
