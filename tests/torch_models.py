"""Seeded PyTorch models for the tests: a residual network, RepVGG, an encoder, a decoder with a KV cache, …"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class Block(nn.Module):
    """ResNet's basic block, with ReLU in place."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, width: int = 16, layers: tuple[int, ...] = (2, 2, 2), classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        blocks, inputs = [], width
        for stage, count in enumerate(layers):
            outputs = width << stage
            for number in range(count):
                blocks.append(Block(inputs, outputs, 2 if stage and number == 0 else 1))
                inputs = outputs
        self.layers = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layers(x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class RepBlock(nn.Module):
    """RepVGG: 3x3 and 1x1 branches and identity, each with batch norm; ``fold`` makes them one convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.conv3 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 1, stride, 0, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.bn0 = nn.BatchNorm2d(inputs) if inputs == outputs and stride == 1 else None
        self.relu = nn.ReLU()
        self.reparam: nn.Conv2d | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.reparam is not None:
            return self.relu(self.reparam(x))
        y = self.bn3(self.conv3(x)) + self.bn1(self.conv1(x))
        if self.bn0 is not None:
            y = y + self.bn0(x)
        return self.relu(y)

    def fold(self) -> None:
        weight, bias = _folded(self.conv3.weight, self.bn3)
        small, more = _folded(self.conv1.weight, self.bn1)
        weight, bias = weight + F.pad(small, [1, 1, 1, 1]), bias + more
        if self.bn0 is not None:
            channels = self.bn0.num_features
            eye = torch.zeros(channels, channels, 3, 3)
            eye[torch.arange(channels), torch.arange(channels), 1, 1] = 1
            kernel, more = _folded(eye, self.bn0)
            weight, bias = weight + kernel, bias + more
        out, inp = weight.shape[:2]
        self.reparam = nn.Conv2d(inp, out, 3, self.stride, 1)
        self.reparam.weight.data, self.reparam.bias.data = weight.detach(), bias.detach()
        del self.conv3, self.bn3, self.conv1, self.bn1
        self.bn0 = None


def _folded(weight: torch.Tensor, norm: nn.BatchNorm2d) -> tuple[torch.Tensor, torch.Tensor]:
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return weight * scale.reshape(-1, 1, 1, 1), norm.bias - norm.running_mean * scale


class RepVGG(nn.Module):
    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.stage0 = RepBlock(3, width, 2)
        self.stage1 = RepBlock(width, width)
        self.stage2 = RepBlock(width, 2 * width, 2)
        self.stage3 = RepBlock(2 * width, 2 * width)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stage3(self.stage2(self.stage1(self.stage0(x))))
        return self.head(x.mean((2, 3)))

    def fold(self) -> RepVGG:
        for block in (self.stage0, self.stage1, self.stage2, self.stage3):
            block.fold()
        return self


class Attention(nn.Module):
    """Self-attention with an optional cache: a (keys, values) pair of shape [batch, heads, past, size]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, past=None, mask=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, length, width)), (k, v)


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, past=None, mask=None):
        y, cache = self.attention(self.norm1(x), past, mask)
        x = x + y
        return x + self.down(F.gelu(self.up(self.norm2(x)))), cache


class Encoder(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2, words: int = 97) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) * math.sqrt(self.embed.embedding_dim)
        x = x + torch.sin(torch.arange(tokens.shape[1], device=x.device)[:, None] * 0.1).to(x.dtype)
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(self.norm(x))


class Decoder(nn.Module):
    """One step with a KV cache: tokens [batch, new] and ``past`` a tuple of (keys, values); returns a dict."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2, words: int = 97) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, past):
        x = self.embed(tokens)
        length, before = tokens.shape[1], past[0][0].shape[2]
        mask = torch.ones(length, before + length, dtype=torch.bool, device=x.device).tril(before)
        caches = []
        for layer, one in zip(self.layers, past, strict=True):
            x, cache = layer(x, one, mask)
            caches.append(cache)
        return {"logits": self.head(x), "past": tuple(caches)}


class Odd(nn.Module):
    """A shared module called twice, state that grows, control flow on values, random operators, in-place and views."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(8, 8)
        self.again = self.shared
        self.drop = nn.Dropout(0.5)
        self.seen: list[torch.Tensor] = []
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor):
        self.steps += 1
        x = self.again(self.shared(x))
        self.seen.append(x)
        if x.sum().item() > -1e9:
            x = x + torch.rand_like(x) + torch.randn(8, dtype=x.dtype, device=x.device)
        y = F.dropout(x, 0.5, training=True)
        y[:, :2] = 0
        y.view(-1)[3:5].mul_(2)
        picked = torch.nonzero(y > 0)
        return (y, {"count": picked.shape[0] * torch.ones((), device=x.device), "steps": self.steps + len(self.seen)})


class OtherKernels(nn.Module):
    """Attention by the mathematical road in float32 and by one kernel in other types, as on a GPU with grouped queries.

    The choice is the whole process's: not for two runs side by side.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = x.transpose(1, 2)
        with sdpa_kernel(SDPBackend.MATH if x.dtype == torch.float32 else SDPBackend.FLASH_ATTENTION):
            y = F.scaled_dot_product_attention(q, q, q)
            z = F.scaled_dot_product_attention(y, q, q, is_causal=True)
        return (z.transpose(1, 2) * 2).transpose(0, 1)


class Recurrent(nn.Module):
    """A recurrent layer, which one kernel does in float32 and many operators in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: torch.Tensor):
        y, (hidden, cell) = self.rnn(x.transpose(0, 1))
        return y.transpose(0, 1) + 1, hidden, cell


def _settled(model: nn.Module) -> nn.Module:
    """Batch norms with statistics that differ from their start."""
    generator = torch.Generator().manual_seed(7)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator) * 0.1)
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
            module.weight.data.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
            module.bias.data.copy_(torch.randn(module.num_features, generator=generator) * 0.1)
    return model.eval()


def resnet():
    torch.manual_seed(0)
    return _settled(ResNet()), torch.randn(2, 3, 32, 32)


def repvgg():
    torch.manual_seed(0)
    return _settled(RepVGG()), torch.randn(2, 3, 32, 32)


def repvgg_folded():
    model, x = repvgg()
    return model.fold().eval(), x


def encoder():
    torch.manual_seed(0)
    return Encoder().eval(), {"tokens": torch.randint(0, 97, (2, 12))}


def decoder():
    torch.manual_seed(0)
    model = Decoder().eval()
    past = tuple((torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8)) for _ in range(2))
    return model, (torch.randint(0, 97, (2, 3)), past)


def odd():
    torch.manual_seed(0)
    return Odd(), torch.randn(4, 8)


def other_kernels():
    torch.manual_seed(0)
    return OtherKernels().eval(), torch.randn(1, 6, 2, 8)


def recurrent():
    torch.manual_seed(0)
    return Recurrent().eval(), torch.randn(3, 2, 4)


def copies():
    """Layers that are copies of each other, in parallel and in a row: nothing but names can tell some of them apart."""

    class Copies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.left = nn.Linear(16, 16)
            self.right = nn.Linear(16, 16)
            self.right.load_state_dict(self.left.state_dict())
            self.chain = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
            for layer in self.chain:
                layer.load_state_dict(self.left.state_dict())
            self.last = nn.Linear(32, 4)

        def forward(self, x):
            a, b = torch.relu(self.left(x)), torch.relu(self.right(x))
            for layer in self.chain:
                a = torch.tanh(layer(a))
            return self.last(torch.cat([a, b], -1))

    return Copies().eval(), torch.randn(5, 16)
