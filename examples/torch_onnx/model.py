"""A small RepVGG-style network: three branches a block while it is trained, one convolution once it is deployed."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(channels, channels, 3, padding=1)
        self.narrow = nn.Conv2d(channels, channels, 1)
        self.deployed: nn.Conv2d | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.deployed is not None:
            return torch.relu(self.deployed(x))
        return torch.relu(self.wide(x) + self.narrow(x) + x)

    def fold(self) -> None:
        channels = self.wide.out_channels
        weight = self.wide.weight + F.pad(self.narrow.weight, [1, 1, 1, 1])
        weight = weight + F.pad(torch.eye(channels)[:, :, None, None], [1, 1, 1, 1])
        self.deployed = nn.Conv2d(channels, channels, 3, padding=1)
        self.deployed.weight.data.copy_(weight)
        self.deployed.bias.data.copy_(self.wide.bias + self.narrow.bias)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(*(Block(16) for _ in range(3)))
        self.head = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(image)).mean((2, 3)))


def build() -> tuple[nn.Module, torch.Tensor]:
    """The network as it was trained, and an example input."""
    torch.manual_seed(0)
    return Network().eval(), torch.rand(1, 3, 32, 32)


def build_deployed() -> tuple[nn.Module, torch.Tensor]:
    """The same network with each block folded into one convolution."""
    network, image = build()
    with torch.no_grad():
        for block in network.blocks:
            block.fold()
    return network, image
