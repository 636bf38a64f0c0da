"""Small seeded PyTorch models of many architectures, as factories for the command line, for tests of exports."""

from __future__ import annotations

import math

import torch
import torch_models
from torch import nn
from torch.nn import functional as F

resnet, repvgg, encoder = torch_models.resnet, torch_models.repvgg, torch_models.encoder


def _trained(model: nn.Module) -> nn.Module:
    """No parameter at its start value: a norm that scales by 1 hides a fault."""
    generator = torch.Generator().manual_seed(11)
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d)):
            module.weight.data.copy_(torch.rand(module.weight.shape, generator=generator) + 0.5)
            module.bias.data.copy_(torch.randn(module.bias.shape, generator=generator) * 0.3)
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator) * 0.1)
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
    return model.eval()


class Mlp(nn.Module):
    """Square layers, one after the other: a transposed or swapped weight fits without a word."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        x = x + F.relu(self.second(x))
        return self.head(self.norm(self.third(x)))


class Siamese(nn.Module):
    """Two inputs of one shape that are not treated alike, and a single number for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.score = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 1)

    def forward(self, query: torch.Tensor, document: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.score(torch.tanh(self.left(query)) * F.relu(self.right(document))))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norm = nn.GroupNorm(4, 16)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        skip = F.leaky_relu(self.down1(image), 0.2)
        x = F.silu(self.norm(self.down2(skip)))
        return self.out(torch.cat([self.up(x), skip], 1))


class Mobile(nn.Module):
    """Depthwise convolutions, hard swish, squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm1 = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
        self.deep, self.norm2 = nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False), nn.BatchNorm2d(16)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.point, self.norm3 = nn.Conv2d(16, 24, 1, bias=False), nn.BatchNorm2d(24)
        self.head = nn.Linear(24, 6)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.hardswish(self.norm1(self.stem(image)))
        x = F.relu(self.norm2(self.deep(x)))
        x = x * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        return self.head(F.relu6(self.norm3(self.point(x))).mean((2, 3)))


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.cls, self.places = nn.Parameter(torch.randn(1, 1, 32)), nn.Parameter(torch.randn(1, 17, 32) * 0.2)
        self.layers = nn.ModuleList(torch_models.EncoderLayer(32, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32, eps=1e-6), nn.Linear(32, 7)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(self.norm(x)[:, 0])


class Convnext(nn.Module):
    """Depthwise convolution, LayerNorm over channels, a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.deep = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.norm, self.up, self.down = nn.LayerNorm(16, eps=1e-6), nn.Linear(16, 64), nn.Linear(64, 16)
        self.gamma = nn.Parameter(torch.rand(16) + 0.2)
        self.head = nn.Linear(16, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return self.head((x + y.permute(0, 3, 1, 2)).mean((-2, -1)))


class Detr(nn.Module):
    """Queries that attend to an image, with two outputs: logits and boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Conv2d(3, 24, 8, 8)
        self.queries = nn.Parameter(torch.randn(5, 24))
        self.q, self.k, self.v, self.out = (nn.Linear(24, 24) for _ in range(4))
        self.norm = nn.LayerNorm(24)
        self.classes, self.boxes = nn.Linear(24, 4), nn.Linear(24, 4)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.backbone(image).flatten(2).transpose(1, 2)
        q = self.queries.expand(x.shape[0], -1, -1)
        weights = torch.softmax(self.q(q) @ self.k(x).transpose(1, 2) / math.sqrt(24), -1)
        y = self.norm(q + self.out(weights @ self.v(x)))
        return {"pred_logits": self.classes(y), "pred_boxes": self.boxes(y).sigmoid()}


class Binary(nn.Module):
    """Two logits and the class: outputs that are too small for values to tell."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(50, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.head(torch.relu(self.mix(self.words(tokens))).mean(1))
        return logits, logits.argmax(-1)


class Dense(nn.Module):
    """Batch norm before the convolution, so that nothing folds; outputs are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.norm1, self.conv1 = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1)
        self.norm2, self.conv2 = nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3, padding=1)
        self.head = nn.Linear(24, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        x = torch.cat([x, self.conv1(F.relu(self.norm1(x)))], 1)
        x = torch.cat([x, self.conv2(F.relu(self.norm2(x)))], 1)
        return self.head(F.max_pool2d(x, 2).mean((2, 3)))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0])


class Functional(nn.Module):
    """Numbers that no module holds: they stand in calls, and on usual inputs no value depends on them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
        self.deep = nn.Conv1d(3, 3, 1, dilation=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.layer_norm(self.first(x), [12], eps=1e-6)
        x = self.second(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        x = F.leaky_relu(torch.exp(x), 0.2)
        return self.deep(torch.clamp(x, 0.0, 100.0))


def _made(kind: type[nn.Module], inputs):
    torch.manual_seed(0)
    return _trained(kind()), inputs()


def mlp():
    return _made(Mlp, lambda: torch.randn(6, 24))


def functional():
    return _made(Functional, lambda: torch.randn(6, 3, 12))


def siamese():
    return _made(Siamese, lambda: {"query": torch.randn(4, 16), "document": torch.randn(4, 16)})


def unet():
    return _made(Unet, lambda: torch.randn(2, 3, 16, 16))


def mobile():
    return _made(Mobile, lambda: torch.randn(2, 3, 32, 32))


def vit():
    return _made(Vit, lambda: torch.randn(2, 3, 32, 32))


def convnext():
    return _made(Convnext, lambda: torch.randn(2, 3, 32, 32))


def detr():
    return _made(Detr, lambda: torch.randn(2, 3, 32, 32))


def binary():
    return _made(Binary, lambda: {"tokens": torch.randint(0, 50, (1, 9))})


def dense():
    return _made(Dense, lambda: torch.randn(2, 3, 32, 32))


def lstm():
    return _made(Lstm, lambda: torch.randn(2, 5, 8))


ARCHITECTURES = (
    "resnet", "repvgg", "encoder", "mlp", "siamese", "unet", "mobile", "vit", "convnext", "detr", "binary", "dense",
    "lstm",
)  # fmt: skip
