"""Training steps that people published because their loss or gradient was wrong under mixed precision.

Each factory returns (module, inputs, loss, optimiser), small enough for a CPU; what is wrong in it was wrong there.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

adam = functools.partial(torch.optim.Adam, lr=1e-3)
"""Called with the parameters of the model that is run."""


class Product(nn.Module):
    """A product of two matrices that are both trained."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(4, 4))
        self.b = nn.Parameter(torch.randn(4, 4))

    def forward(self, scale: torch.Tensor) -> torch.Tensor:
        """Of the shape of ``scale``, (4, 4)."""
        return (self.a @ self.b) * scale


def infinite_gradient() -> tuple[Any, ...]:
    """pytorch/pytorch 111739: the sum of a product; GradScaler's first scale, 65536, is beyond FP16."""
    return Product(), (torch.ones(4, 4),), torch.sum, adam


class RelativeAttention(nn.Module):
    """Attention with a bias for content and one for position, added before they are scaled."""

    def __init__(self, width: int, grown: float) -> None:
        super().__init__()
        self.q, self.k, self.v, self.p, self.out = (nn.Linear(width, width) for _ in range(5))
        self.norm = nn.LayerNorm(width)
        self.content = nn.Parameter(torch.randn(width))
        self.position = nn.Parameter(torch.randn(width))
        with torch.no_grad():
            for one in (self.q, self.k, self.p):  # as they are after some epochs
                one.weight.mul_(grown)
        self.width = width

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """x: (batch, time, width). positions: (time, width)."""
        normed = self.norm(x)
        q, k, v, p = self.q(normed), self.k(normed), self.v(normed), self.p(positions)
        by_content = torch.matmul(q + self.content, k.transpose(-2, -1))
        by_position = torch.matmul(q + self.position, p.transpose(-2, -1))
        scores = (by_content + by_position) / self.width**0.5
        return x + self.out(torch.softmax(scores, -1) @ v)


class Encoder(nn.Module):
    """Two blocks of attention; the weights of the second have grown."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([RelativeAttention(64, 1.0), RelativeAttention(64, 90.0)])
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """(batch, time, classes)."""
        for block in self.blocks:
            x = block(x, positions)
        return self.head(x)


def _entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels)


def grown_attention() -> tuple[Any, ...]:
    """wenet-e2e/wenet 891 (D-FINE 43 and 199 are alike): scores exceed 65504 before they are scaled."""
    torch.manual_seed(1)
    labels = torch.randint(0, 10, (2 * 12,))
    inputs = (torch.randn(2, 12, 64), torch.randn(12, 64))
    return Encoder(), inputs, functools.partial(_entropy, labels=labels), adam


class Matching(nn.Module):
    """Where in a window the best match of each feature lies, and how sure that is: its standard deviation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        with torch.no_grad():
            self.first.weight.mul_(8.0)
        self.register_buffer("grid", torch.linspace(-1.0, 1.0, 25))

    def forward(self, picked: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        """picked: (matches, width). window: (matches, 25, width)."""
        heat = torch.softmax(torch.einsum("mc,mrc->mr", self.first(picked), self.second(window)), -1)
        heat = heat.to(self.second(window).dtype)  # heat goes on in the model's own type
        at = (heat * self.grid).sum(-1)
        variance = (heat * self.grid**2).sum(-1) - at * at
        return torch.sqrt(torch.clamp(variance, min=1e-10))


def lost_floor() -> tuple[Any, ...]:
    """zju3dv/LoFTR 188 and kornia/kornia 4614: the floor under a root, 1e-10, makes its slope 1e5."""
    torch.manual_seed(2)
    return Matching(32), (torch.randn(6, 32), torch.randn(6, 25, 32)), torch.sum, adam


class Corners(nn.Module):
    """A head that gives distributions of box edges, 33 bins each."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(32, 64), nn.Linear(64, 33)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (edges, 32). (edges, 33)."""
        return self.head(torch.relu(self.body(x)))


def _distilled(corners: torch.Tensor, teacher: torch.Tensor, temperature: float = 5.0) -> torch.Tensor:
    """What the student's distributions lack of the teacher's; in the type that the model gives."""
    wanted = nn.functional.softmax(teacher.to(corners.dtype) / temperature, -1)
    got = nn.functional.log_softmax(corners / temperature, -1)
    return temperature**2 * nn.functional.kl_div(got, wanted, reduction="batchmean")


def distilled_in_half() -> tuple[Any, ...]:
    """Peterande/D-FINE 361: the criterion runs outside of autocast, on what autocast made FP16."""
    torch.manual_seed(3)
    model, x = Corners(), torch.randn(256, 32)
    with torch.no_grad():
        teacher = model(x) + 0.02 * torch.randn(256, 33)
    return model, (x,), functools.partial(_distilled, teacher=teacher), adam
