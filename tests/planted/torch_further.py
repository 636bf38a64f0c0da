"""Further planted faults and clean models in PyTorch, of kinds that the rules were not calibrated on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from planted.torch_faults import Body, Case, Net, image, linear, tokens

CASES: list[Case] = []


def case(
    kind: str, modes: str, who: Sequence[str] = (), why: Sequence[str] = (), level: str = "op"
) -> Callable[[Body], Body]:
    """Register a factory once for each of the modes; its name is the case's."""

    def register(build: Body) -> Body:
        for mode in modes.split():
            name = f"{build.__name__}_{mode.removeprefix('torch_')}" + ("" if level == "op" else f"_{level}")
            CASES.append(
                Case(name, kind, mode, build.__name__, "", tuple(who), tuple(why), level, module="torch_further")
            )
        return build

    return register


def two(name: str, base: Body, change: Callable[[Any], Any], who: Sequence[str], level: str = "op") -> None:
    """Two models: as it is built, and changed."""

    def build() -> Any:
        module, inputs = base()
        with torch.no_grad():
            change(module)
        return module, inputs

    globals()[name] = build
    CASES.append(
        Case(name, "files", "torch_fp32", name, base.__name__, tuple(who), ("files_differ",), level,
             module="torch_further")
    )  # fmt: skip


# --- overflow, range, underflow


@case("overflow", "torch_fp16 torch_autocast_fp16", ["g/convolution"], ["overflow"])
def grouped_conv() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.last(torch.tanh(m.g(m.first(x)) * 1e-6).mean((2, 3)))

    net = Net(body, first=nn.Conv2d(3, 16, 3), g=nn.Conv2d(16, 16, 3, groups=4, stride=2), last=nn.Linear(16, 4))
    with torch.no_grad():
        net.g.weight.mul_(3.5e5)
    return net, image()


@case("overflow", "torch_fp16", ["t/convolution"], ["overflow"])
def transposed_conv() -> Any:
    def body(m: Any, x: Any) -> Any:
        return torch.sigmoid(m.t(m.first(x)) * 1e-6)

    net = Net(body, first=nn.Conv2d(3, 8, 3), t=nn.ConvTranspose2d(8, 4, 2, stride=2))
    with torch.no_grad():
        net.t.weight.mul_(8e5).clamp_(-6e4, 6e4)
        net.first.weight.mul_(20)
    return net, image()


@case("overflow", "torch_fp16 torch_autocast_fp16", ["down/addmm", "up/addmm", "mul"], ["overflow"])
def gated_mlp() -> Any:
    """Of a Llama-like layer whose gate and value are both large: their product is beyond float16."""

    def body(m: Any, x: Any) -> Any:
        return m.norm(x + m.down(F.silu(m.gate(x)) * m.up(x)))

    return Net(
        body, gate=linear(32, 64, 400.0), up=linear(32, 64, 2500.0), down=linear(64, 32, 1e-3), norm=nn.RMSNorm(32)
    ), torch.randn(8, 32)  # fmt: skip


@case("overflow", "torch_fp16", ["einsum/bmm", "bmm"], ["overflow"])
def einsum_of_scores() -> Any:
    def body(m: Any, x: Any) -> Any:
        s = torch.einsum("bid,bjd->bij", m.q(x), m.k(x))
        return torch.softmax(s * 1e-7, -1)

    return Net(body, q=linear(32, 32, 900.0), k=linear(32, 32, 900.0)), tokens(length=6)


@case("overflow", "torch_fp16", ["reciprocal"], ["overflow"])
def reciprocal_of_small() -> Any:
    def body(m: Any, x: Any) -> Any:
        inverse = torch.reciprocal(torch.sigmoid(m.a(x)) * 1e-5)
        return m.b(inverse * 1e-5)

    return Net(body, a=linear(32, 32), b=linear(32, 32)), tokens()


@case("overflow", "torch_fp16", ["masked_fill", "mul", "sub", "rsub"], ["overflow", "weight_overflow", "born"])
def wholly_masked_row() -> Any:
    def body(m: Any, x: Any, keep: Any) -> Any:
        score = torch.bmm(x, x.transpose(1, 2)) / 8
        return torch.softmax(score + (1.0 - keep)[:, :, None] * -1e6, -1) @ x

    keep = torch.ones(2, 8)
    keep[1, 3] = 0
    return Net(body), (tokens(), keep)


@case("weight_overflow", "torch_fp16", ["e/embedding"], ["weight_overflow", "overflow"])
def embedding_row() -> Any:
    def body(m: Any, ids: Any) -> Any:
        return m.norm(m.e(ids))

    net = Net(body, e=nn.Embedding(20, 32), norm=nn.LayerNorm(32))
    with torch.no_grad():
        net.e.weight[7, 4] = 1e5
    return net, torch.tensor([[1, 7, 3, 4], [5, 6, 7, 0]])


@case("underflow", "torch_fp16", ["softmax", "_softmax"], ["underflow"])
def log_of_softmax() -> Any:
    def body(m: Any, x: Any) -> Any:
        return torch.log(torch.softmax(m.a(x), -1))

    return Net(body, a=linear(32, 12, 40.0)), tokens()


@case("underflow", "torch_fp16", ["mul", "mul#2"], ["underflow"])
def small_steps() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(m.a(x) * 1e-4 * 2e-4 * 1e4 * 5e3)

    return Net(body, a=linear(32, 32), b=linear(32, 32)), tokens()


@case("underflow", "torch_fp16", ["sigmoid"], ["underflow"])
def cross_entropy_by_hand() -> Any:
    def body(m: Any, x: Any) -> Any:
        p = torch.sigmoid(m.a(x) - 19.0)
        return -torch.log(p)

    return Net(body, a=linear(32, 12, 3.0)), tokens()


# --- cancellation and amplification


@case("cancellation", "torch_bf16", ["add", "shift/add"], ["cancellation", "amplified"])
def group_norm_of_offset() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.last(m.norm(m.first(x) + 300.0))

    return Net(body, first=nn.Conv2d(3, 8, 3), norm=nn.GroupNorm(2, 8), last=nn.Conv2d(8, 4, 3)), image()


@case("amplified", "torch_bf16", ["mul", "args_0"], ["amplified"])
def positions() -> Any:
    def body(m: Any, pos: Any) -> Any:
        angle = pos[:, None] * m.frequencies
        return m.a(torch.cat([angle.sin(), angle.cos()], -1))

    frequencies = 10000.0 ** -(torch.arange(16) / 16)
    return Net(body, frequencies=frequencies, a=linear(32, 8)), torch.arange(0, 3000, 13).float()


@case("cancellation", "torch_bf16", ["sub", "mean", "pow", "mul", "sum", "a/addmm", "add"],
      ["cancellation", "amplified"])  # fmt: skip
def variance_by_hand() -> Any:
    def body(m: Any, x: Any) -> Any:
        x = m.a(x) + 20.0
        var = (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2
        return (x - 20.0) / torch.sqrt(var.clamp(min=0.01))

    return Net(body, a=linear(32, 32)), torch.randn(16, 32)


@case("cancellation", "torch_fp16", ["add"], ["cancellation", "amplified"])
def softmax_minus_one() -> Any:
    def body(m: Any, x: Any) -> Any:
        p = m.a(x) * 1e-3 + 1.0
        return m.b((p - 1.0) * 1e3)

    return Net(body, a=linear(32, 32), b=linear(32, 32)), tokens()


@case("decision", "torch_bf16", ["add"], ["cancellation", "amplified", "flips"])
def argmax_only() -> Any:
    def body(m: Any, x: Any) -> Any:
        return (m.a(x) + 700.0).argmax(-1)

    return Net(body, a=linear(32, 64)), tokens()


@case("decision", "torch_bf16", ["add"], ["cancellation", "amplified", "flips"])
def expert_choice() -> Any:
    """A mixture of experts whose router adds an offset: other experts are chosen."""

    def body(m: Any, x: Any) -> Any:
        chosen = (m.router(x) + 400.0).argmax(-1)
        return torch.stack([F.linear(row, m.experts[int(i)]) for row, i in zip(x, chosen, strict=True)])

    return Net(body, router=linear(16, 8), experts=torch.randn(8, 16, 16)), torch.randn(12, 16)


@case("coarse", "torch_fp16 torch_bf16", ["cumsum", "sum"], ["cancellation", "long_reduction", "coarse"])
def running_mean_far_away() -> Any:
    def body(m: Any, x: Any) -> Any:
        total = torch.cumsum(m.a(x).abs() + 0.5, 1)
        return total[:, 1:] - total[:, :-1]

    return Net(body, a=linear(4, 4)), torch.randn(2, 1500, 4)


# --- two models


def decoder() -> Any:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, 99, (2, 12))}


def recurrent() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.out(m.rnn(x)[0])

    return Net(body, rnn=nn.LSTM(16, 24, batch_first=True), out=linear(24, 8)), tokens(16)


def convolutions() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.LeakyReLU(0.1),
        nn.Conv2d(8, 8, 3, groups=4, padding=1), nn.GroupNorm(2, 8), nn.ELU(), nn.Upsample(scale_factor=2),
        nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Hardswish(), nn.AvgPool2d(2), nn.Flatten(1), nn.Linear(4096, 6),
    ), image()  # fmt: skip


def _set(path: str, place: tuple[int, ...], value: float) -> Callable[[Any], Any]:
    return lambda module: module.get_parameter(path).__setitem__(place, value)


def _other(path: str, name: str, value: Any) -> Callable[[Any], Any]:
    return lambda module: setattr(module.get_submodule(path), name, value)


two("one_gate", decoder, _set("model.layers.1.mlp.gate_proj.weight", (3, 4), 3.0), ["model.layers.1.mlp.gate_proj/mm"])
two("one_embedding", decoder, lambda m: m.model.embed_tokens.weight.mul_(1.5), ["model.embed_tokens/embedding"])
two("one_group", convolutions, _set("3.weight", (5, 1, 2, 0), 1.7), ["3/convolution"])
two("one_transposed", convolutions, _set("7.weight", (5, 1, 1, 0), 1.7), ["7/convolution"])
two("one_affine", convolutions, _set("1.weight", (2,), 1.7), ["1/instance_norm", "1/batch_norm", "1/mul", "1"])
two("other_slope", convolutions, _other("2", "negative_slope", 0.3), ["2/leaky_relu"])
two("other_groups_epsilon", convolutions, _other("4", "eps", 0.2), ["4/group_norm", "4/native_group_norm"])
two(
    "one_recurrent_weight",
    recurrent,
    _set("rnn.weight_hh_l0", (4, 2), 2.5),
    ["rnn/lstm", "rnn/addmm", "rnn/mm", "rnn/lstm/mkldnn_rnn_layer"],
)
two("one_of_the_head_module", decoder, _set("lm_head.weight", (7, 7), 3.0), ["lm_head"], "module")

# --- clean and benign

_ALL = "torch_fp16 torch_bf16 torch_autocast_bf16"


@case("clean", _ALL)
def clean_convolutions() -> Any:
    return convolutions()


@case("clean", "torch_bf16 torch_autocast_bf16", level="module")
def clean_convolutions_by_module() -> Any:
    return convolutions()


@case("clean", "torch_bf16 torch_fp16")
def clean_recurrent() -> Any:
    return recurrent()


@case("clean", _ALL)
def clean_whisper() -> Any:
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=16, max_source_positions=20,
        max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    return model, {"input_features": torch.randn(1, 16, 40), "decoder_input_ids": torch.tensor([[1, 5, 9, 3]])}


@case("clean", "torch_bf16 torch_fp16")
def clean_vision() -> Any:
    import transformers

    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    return transformers.ViTModel(config).eval(), {"pixel_values": torch.randn(2, 3, 32, 32)}


@case("clean", "torch_bf16 torch_fp16")
def clean_classes() -> Any:
    def body(m: Any, x: Any) -> Any:
        logits = m.b(torch.relu(m.a(x)))
        return logits, logits.argmax(-1)

    return Net(body, a=linear(32, 64), b=linear(64, 10, 4.0)), torch.randn(64, 32)


@case("clean", "torch_bf16 torch_fp16")
def clean_best() -> Any:
    def body(m: Any, x: Any) -> Any:
        return torch.topk(torch.softmax(m.a(x), -1), 5).values

    return Net(body, a=linear(32, 64, 3.0)), torch.randn(16, 32)


@case("clean", "torch_bf16 torch_fp16")
def clean_long_product() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.tanh(m.a(x)))

    return Net(body, a=linear(4096, 32), b=linear(32, 8)), torch.randn(4, 4096)


@case("benign", "torch_bf16 torch_fp16")
def own_infinities() -> Any:
    def body(m: Any, x: Any) -> Any:
        score = torch.bmm(x, x.transpose(1, 2)) / 8
        score = score.masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), float("-inf"))
        return m.out(torch.softmax(score, -1) @ x)

    return Net(body, out=linear(32, 32)), tokens()


@case("benign", "torch_bf16 torch_fp16")
def rows_of_zeros() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.relu(torch.sigmoid(m.a(x)) - 2.0))

    return Net(body, a=linear(32, 32), b=linear(32, 32)), tokens()


@case("benign", "torch_fp16")
def saturated_gate() -> Any:
    def body(m: Any, x: Any) -> Any:
        return torch.sigmoid((m.a(x).abs() + 0.1) * 1e6) * x

    return Net(body, a=linear(32, 32)), tokens()


@case("benign", "torch_bf16 torch_autocast_bf16")
def dropout_in_eval() -> Any:
    return nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.5), nn.GELU(), nn.Linear(64, 8)).eval(), torch.randn(8, 32)
