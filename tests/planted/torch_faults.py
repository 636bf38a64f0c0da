"""Small PyTorch models with one planted fault each, and clean or benign ones: who did it, and why, is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Body = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """factory: of the file ``module``, builds the target's model. base: builds the baseline's, where the two differ.

    who: tensors any of which is right as the first culprit; () for a clean or benign model. why: accepted cause codes.
    """

    name: str
    kind: str
    mode: str
    factory: str
    base: str = ""
    who: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    level: str = "op"
    baseline: str = "torch_fp32"
    module: str = "torch_faults"

    @property
    def options(self) -> dict[str, str]:
        """On a CPU, whose kernels are the same everywhere."""
        return {"level": self.level, "device": "cpu"}

    def make(self, _folder: Path) -> tuple[str, str | None, str]:
        """The target's model, the baseline's, and feeds: the factories bring their own."""
        file = Path(__file__).with_name(f"{self.module}.py")
        return f"{file}:{self.factory}", f"{file}:{self.base}" if self.base else None, ""


CASES: list[Case] = []


class Net(nn.Module):
    """A forward function with the modules that it calls; ``m.<name>`` in the function."""

    def __init__(self, body: Body, **parts: Any) -> None:
        super().__init__()
        self.body = body
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.body(self, *args)


def case(
    kind: str, modes: str, who: Sequence[str] = (), why: Sequence[str] = (), level: str = "op"
) -> Callable[[Body], Body]:
    """Register a factory once for each of the modes; its name is the case's."""

    def register(build: Body) -> Body:
        for mode in modes.split():
            name = f"{build.__name__}_{mode.removeprefix('torch_')}" + ("" if level == "op" else f"_{level}")
            CASES.append(Case(name, kind, mode, build.__name__, "", tuple(who), tuple(why), level))
        return build

    return register


def tokens(size: int = 32, length: int = 8, scale: float = 1.0) -> Any:
    return torch.randn(2, length, size) * scale


def image(channels: int = 3) -> Any:
    return torch.randn(2, channels, 16, 16)


def linear(inside: int, outside: int, scale: float = 1.0) -> Any:
    made = nn.Linear(inside, outside)
    with torch.no_grad():
        made.weight.mul_(scale)
    return made


# --- overflow


@case("overflow", "torch_fp16 torch_autocast_fp16", ["up/addmm"], ["overflow"])
def linear_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.norm(m.down(torch.relu(m.up(torch.relu(m.first(x))))))

    return Net(
        body, first=linear(32, 32, 100.0), up=linear(32, 64, 1e4), down=linear(64, 32, 1e-4), norm=nn.LayerNorm(32)
    ), torch.randn(4, 32)  # fmt: skip


@case("overflow", "torch_fp16", ["up"], ["overflow"], level="module")
def linear_overflow_module() -> Any:
    return linear_overflow()


@case("overflow", "torch_fp16 torch_autocast_fp16", ["bmm"], ["overflow"])
def bmm_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        q, k = m.q(x), m.k(x)
        score = torch.bmm(q, k.transpose(1, 2)) / 4e4
        return m.out(torch.softmax(score, -1) @ x)

    return Net(body, q=linear(32, 32, 600.0), k=linear(32, 32, 600.0), out=linear(32, 32)), tokens()


@case("overflow", "torch_fp16", ["pow", "mul"], ["overflow"])
def square_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        x = m.a(x)
        return m.b(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)))

    return Net(body, a=linear(32, 32, 900.0), b=linear(32, 32)), tokens()


@case("overflow", "torch_fp16", ["exp"], ["overflow"])
def exp_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        e = torch.exp(m.a(x))
        return e / e.sum(-1, keepdim=True)

    return Net(body, a=linear(32, 32, 6.0)), tokens(scale=2.0)


@case("overflow", "torch_fp16 torch_autocast_fp16", ["c2/convolution"], ["overflow"])
def conv_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.c3(m.c2(torch.relu(m.c1(x))) * 1e-5)

    net = Net(body, c1=nn.Conv2d(3, 8, 3), c2=nn.Conv2d(8, 8, 3), c3=nn.Conv2d(8, 4, 3))
    with torch.no_grad():
        net.c2.weight.mul_(4e5)
    return net, image()


@case("overflow", "torch_fp16", ["mul"], ["overflow"])
def scale_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(m.a(x) * 2e5 / 2e5)

    return Net(body, a=linear(32, 32), b=linear(32, 32)), tokens()


@case("overflow", "torch_fp16", ["mul"], ["overflow"])
def in_place_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        part = y[:, 2:5]
        part.mul_(2e5)
        return m.b(y.relu_()) * 1e-3

    return Net(body, a=linear(32, 32), b=linear(32, 32, 0.1)), tokens()


@case("overflow", "torch_fp16", ["sum", "cumsum"], ["overflow"])
def long_sum_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.a(x) / torch.cumsum(x.abs() * 10, 0)[-1:]

    return Net(body, a=linear(4, 4)), torch.rand(20000, 4) + 0.5


@case("range", "torch_fp16", ["norm/linalg_vector_norm", "linalg_vector_norm"], ["range_inside", "overflow"])
def norm_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        x = m.a(x)
        return m.b(x / x.norm(dim=-1, keepdim=True))

    return Net(body, a=linear(256, 256, 5000.0), b=linear(256, 32)), torch.randn(4, 256) * 3


@case("weight_overflow", "torch_fp16 torch_autocast_fp16", ["up/addmm"], ["weight_overflow"])
def weight_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.down(torch.relu(m.up(x * 1e-3)))

    net = Net(body, up=linear(32, 64), down=linear(64, 32, 1e-2))
    with torch.no_grad():
        net.up.weight[3, 5] = 90000.0
    return net, torch.randn(4, 32)


@case("weight_overflow", "torch_fp16", ["bn/batch_norm"], ["weight_overflow"])
def variance_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.c2(m.bn(m.c1(x)))

    net = Net(body, c1=nn.Conv2d(3, 8, 3), bn=nn.BatchNorm2d(8), c2=nn.Conv2d(8, 4, 3))
    with torch.no_grad():
        net.c1.weight.mul_(3000)
        net.bn.running_var.fill_(9.8e6)
    return net, image()


@case("weight_overflow", "torch_fp16", ["mul", "add"], ["weight_overflow", "born"])
def mask_times_zero() -> Any:
    def body(m: Any, x: Any, keep: Any) -> Any:
        score = torch.bmm(x, x.transpose(1, 2)) / 8
        score = score + (1.0 - keep)[:, None, :] * m.lowest
        return m.out(torch.softmax(score, -1) @ x)

    keep = torch.tensor([[1.0, 1, 1, 1, 1, 1, 0, 0]] * 2)
    return Net(body, lowest=torch.tensor(-3.4028235e38), out=linear(32, 32)), (tokens(), keep)


# --- underflow


@case("underflow", "torch_fp16", ["mul"], ["underflow", "weight_underflow"])
def product_underflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(m.a(x) * 1e-8 * 1e8)

    return Net(body, a=linear(32, 32), b=linear(32, 32)), tokens()


# the mean of 1e-8 vanishes by itself too, and its effect is the larger one: a division by zero
@case("underflow", "torch_fp16", ["pow", "mean"], ["underflow"])
def square_underflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        sq = x.pow(2)
        return m.a(sq / sq.mean(-1, keepdim=True))

    return Net(body, a=linear(32, 32)), tokens(scale=1e-4)


@case("underflow", "torch_fp16", ["exp"], ["underflow"])
def exp_underflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        p = torch.exp(-(m.a(x).abs() + 16.0))
        return m.b(p / p.sum(-1, keepdim=True))

    return Net(body, a=linear(32, 32, 3.0), b=linear(32, 32)), tokens()


@case("epsilon", "torch_fp16", ["add"], ["weight_underflow"])
def epsilon_underflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        var = (x * x).mean(-1, keepdim=True)
        return m.a(x / torch.sqrt(var + 1e-12))

    x = torch.cat([torch.zeros(1, 4, 16), torch.ones(1, 4, 16)])
    return Net(body, a=linear(16, 16)), x


# --- cancellation, sums, coarse arithmetic


@case("cancellation", "torch_fp16 torch_bf16", ["add"], ["cancellation"])
def shift_and_back() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b((m.a(x) + 2000.0) - 2000.0)

    return Net(body, a=linear(32, 32), b=linear(32, 32)), tokens()


@case("cancellation", "torch_fp16 torch_bf16", ["u/addmm", "add"], ["cancellation"])
def two_branches() -> Any:
    def body(m: Any, x: Any) -> Any:
        u = m.u(x)
        return m.b((u + x * 0.05) - u)

    return Net(body, u=linear(32, 32, 300.0), b=linear(32, 32)), torch.randn(8, 32)


@case("cancellation", "torch_autocast_bf16", ["u/addmm", "v/addmm"], ["cancellation", "amplified"])
def twins_autocast() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(m.u(x) - m.v(x))

    net = Net(body, u=linear(32, 32, 30.0), v=linear(32, 32), b=linear(32, 32))
    with torch.no_grad():
        net.v.weight.copy_(net.u.weight + 0.005 * torch.randn(32, 32))
        net.v.bias.copy_(net.u.bias)
    return net, torch.randn(8, 32)


@case("cancellation", "torch_bf16", ["cumsum"], ["cancellation", "long_reduction"])
def long_cumsum() -> Any:
    def body(m: Any, x: Any) -> Any:
        total = torch.cumsum(m.a(x), 0)
        return total[1:] - total[:-1]

    return Net(body, a=linear(8, 8)), torch.rand(4000, 8) + 1.0


@case("amplified", "torch_bf16 torch_autocast_bf16", ["a/addmm"], ["amplified"])
def softmax_of_shifted_scores() -> Any:
    def body(m: Any, x: Any) -> Any:
        return torch.softmax(m.a(x), -1)

    net = Net(body, a=linear(32, 32, 3.0))
    with torch.no_grad():
        net.a.bias.add_(500.0)
    return net, torch.randn(64, 32)


@case("born", "torch_fp16", ["sqrt", "sub", "mul", "mul#2"], ["born", "cancellation", "amplified"])
def sqrt_of_negative() -> Any:
    def body(m: Any, x: Any) -> Any:
        x = x.abs()
        return m.a(torch.sqrt(x * 100.03 - x * 100.0))

    return Net(body, a=linear(32, 32)), tokens()


@case("born", "torch_fp16", ["mul", "log"], ["underflow", "weight_underflow"])
def log_of_underflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.a(torch.log(torch.sigmoid(x) * 2e-8))

    return Net(body, a=linear(32, 32)), tokens()


@case("epsilon", "torch_fp16", ["clamp_min", "linalg_vector_norm"], ["weight_underflow"])
def zero_vector() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.a(F.normalize(x, dim=-1))

    x = torch.randn(4, 16)
    x[2] = 0
    return Net(body, a=linear(16, 16)), x


@case("overflow", "torch_fp16", ["exp"], ["overflow"])
def softplus_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.log(1 + torch.exp(m.a(x))))

    return Net(body, a=linear(32, 32, 10.0), b=linear(32, 32)), tokens()


@case("overflow", "torch_fp16", ["mul_", "mul", "sum"], ["overflow"])
def sum_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        total = m.a(x).abs().sum((1, 2))
        return m.b(x) / total[:, None, None]

    return Net(body, a=linear(32, 32, 100.0), b=linear(32, 32)), tokens(length=256)


@case("overflow", "torch_autocast_fp16", ["a/addmm"], ["range_inside", "overflow"])
def cast_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.tanh(m.a(x.exp())))

    return Net(body, a=linear(16, 16, 1e-5), b=linear(16, 16)), torch.randn(8, 16) * 2 + 10


@case("overflow", "torch_fp16", ["index_put", "copy", "mul"], ["overflow"])
def cache_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        m.cache[:, 1:9] = m.a(x) * 3e5
        return m.b(torch.tanh(m.cache.mean(1) * 1e-6))

    return Net(body, a=linear(32, 32), b=linear(32, 32), cache=torch.zeros(2, 10, 32)), tokens()


@case("cancellation", "torch_bf16 torch_fp16", ["u/addmm", "v/addmm"], ["cancellation"])
def two_layers() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(m.u(x) - m.v(x) * 1.0)

    net = Net(body, u=linear(64, 32, 900.0), v=linear(64, 32), b=linear(32, 32))
    with torch.no_grad():
        net.v.weight.copy_(net.u.weight.half().float() + 0.25 * torch.randn(32, 64))
        net.v.bias.copy_(net.u.bias)
    return net, torch.randn(16, 64)


@case("amplified", "torch_bf16", ["a/addmm", "mul"], ["amplified"])
def sine_of_large_phase() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.sin(m.a(x) * 100.0))

    return Net(body, a=linear(32, 32), b=linear(32, 32)), torch.randn(16, 32)


# --- two models


class Encoder(nn.Module):
    def __init__(self, size: int = 32, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "qkv": nn.Linear(size, 3 * size), "out": nn.Linear(size, size), "n1": nn.LayerNorm(size),
                    "up": nn.Linear(size, 2 * size), "down": nn.Linear(2 * size, size), "n2": nn.RMSNorm(size),
                }
            )
            for _ in range(layers)
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        batch, length, size = x.shape
        for layer in self.layers:
            qkv = layer["qkv"](x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
            x = layer["n1"](x + layer["out"](mixed.transpose(1, 2).reshape(batch, length, size)))
            x = layer["n2"](x + layer["down"](F.gelu(layer["up"](x))))
        return x


def encoder() -> Any:
    return Encoder(), tokens()


def cnn() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    ), image()  # fmt: skip


def mlp() -> Any:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), torch.randn(4, 32) * 3


def two(name: str, base: Body, change: Callable[[Any], None], who: Sequence[str], level: str = "op") -> None:
    def build() -> Any:
        module, inputs = base()
        with torch.no_grad():
            change(module)
        return module, inputs

    globals()[name] = build
    CASES.append(
        Case(name, "files", "torch_fp32", name, base.__name__, tuple(who), ("files_differ",), level)
    )  # fmt: skip


def _weight(path: str, place: tuple[int, ...], value: float) -> Callable[[Any], None]:
    return lambda module: module.get_parameter(path).__setitem__(place, value)


def _scaled(path: str, by: float) -> Callable[[Any], None]:
    return lambda module: module.get_parameter(path).mul_(by)


def _attribute(path: str, name: str, value: Any) -> Callable[[Any], None]:
    return lambda module: setattr(module.get_submodule(path), name, value)


two("other_element", encoder, _weight("layers.0.down.weight", (3, 4), 5.0), ["layers.0.down/addmm"])
two("other_bias", encoder, _weight("layers.1.up.bias", (3,), 2.0), ["layers.1.up/addmm"])
two("other_scale", encoder, _scaled("layers.0.qkv.weight", 1.1), ["layers.0.qkv/addmm"])
two("other_gain", encoder, _scaled("layers.1.n2.weight", 0.9), ["layers.1.n2/rms_norm", "layers.1.n2/mul#2",
                                                                "layers.1.n2/rms_norm/mul#2"])  # fmt: skip
two("other_epsilon", encoder, _attribute("layers.0.n1", "eps", 0.3), ["layers.0.n1/layer_norm"])
two("other_epsilon_module", encoder, _attribute("layers.0.n1", "eps", 0.3), ["layers.0.n1"], "module")
two("other_bias_module", encoder, _weight("layers.1.up.bias", (3,), 2.0), ["layers.1.up"], "module")
two("other_filter", cnn, _scaled("0.weight", 0.9), ["0/convolution"])
two("other_stride", cnn, lambda m: m[3].__setattr__("dilation", (2, 2)) or m[3].__setattr__("padding", (2, 2)),
    ["3/convolution"])  # fmt: skip
two("other_mean", cnn, lambda m: m[1].running_mean.add_(0.5), ["1/batch_norm"])


two("other_activation", mlp, _attribute("1", "approximate", "tanh"), ["1/gelu"])
two("other_heads", encoder, _attribute("", "heads", 8), ["scaled_dot_product_attention", "view#2"])


# --- decisions that follow from an error are not to be blamed for it


@case("downstream", "torch_bf16", ["add"], ["cancellation"])
def argmax_after_cancellation() -> Any:
    def body(m: Any, x: Any) -> Any:
        logits = m.b((m.a(x) + 2000.0) - 2000.0)
        return logits, logits.argmax(-1)

    return Net(body, a=linear(32, 32), b=linear(32, 32)), tokens()


# --- clean and benign

_ALL = "torch_fp16 torch_bf16 torch_autocast_bf16 torch_autocast_fp16"


@case("clean", _ALL)
def clean_encoder() -> Any:
    return encoder()


@case("clean", "torch_fp16 torch_bf16", level="module")
def clean_encoder_module() -> Any:
    return encoder()


@case("clean", _ALL)
def clean_cnn() -> Any:
    return cnn()


@case("clean", "torch_bf16 torch_autocast_bf16")
def clean_lstm() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.out(m.rnn(x)[0])

    return Net(body, rnn=nn.LSTM(16, 24, num_layers=2, batch_first=True), out=linear(24, 8)), tokens(16)


@case("clean", "torch_bf16 torch_fp16")
def clean_gru() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.out(m.rnn(x)[0])

    return Net(body, rnn=nn.GRU(16, 24, bidirectional=True, batch_first=True), out=linear(48, 8)), tokens(16)


def _huggingface(kind: str) -> Any:
    import transformers

    sizes: dict[str, Any] = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = torch.randint(0, 99, (2, 12))
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=32)
        model: Any = transformers.GPT2LMHeadModel(config)
    elif kind == "llama":
        config = transformers.LlamaConfig(**sizes, intermediate_size=64, num_key_value_heads=2)
        model = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.BertConfig(**sizes, intermediate_size=64)
        model = transformers.BertForSequenceClassification(config)
    return model.eval(), {"input_ids": ids, "attention_mask": mask}


@case("clean", _ALL)
def clean_gpt2() -> Any:
    return _huggingface("gpt2")


@case("clean", _ALL)
def clean_llama() -> Any:
    return _huggingface("llama")


@case("clean", _ALL)
def clean_bert() -> Any:
    return _huggingface("bert")


@case("clean", "torch_bf16 torch_fp16")
def residual_stream() -> Any:
    def body(m: Any, x: Any) -> Any:
        for layer in m.layers:
            x = x + 0.1 * torch.tanh(layer(x))
        return x

    return Net(body, layers=nn.ModuleList(linear(64, 64) for _ in range(24))), torch.randn(64, 64)


@case("benign", "torch_fp16")
def absorbed_overflow() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b((m.a(x) * 2e5).clamp(-100.0, 100.0))

    return Net(body, a=linear(32, 32), b=linear(32, 32)), tokens()


@case("benign", "torch_fp16 torch_bf16")
def absorbed_mask() -> Any:
    def body(m: Any, x: Any, keep: Any) -> Any:
        score = torch.bmm(x, x.transpose(1, 2)) / 8
        score = score.masked_fill(keep[:, None, :] == 0, float("-inf"))
        return m.out(torch.softmax(score, -1) @ x)

    keep = torch.tensor([[1.0, 1, 1, 1, 1, 1, 0, 0]] * 2)
    return Net(body, out=linear(32, 32)), (tokens(), keep)
