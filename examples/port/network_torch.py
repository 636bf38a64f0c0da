"""The network that is ported: convolutions, then one transformer block, in PyTorch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention over 64 places of 32 channels, and an MLP."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, places, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(n, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5, dim=-1)
        x = x + self.proj((scores @ v).transpose(1, 2).reshape(n, places, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32)
        self.pool = nn.MaxPool2d(2)
        self.block = Block()
        self.head = nn.Linear(32, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(image)))
        x = self.pool(torch.relu(self.bn2(self.conv2(x))))
        x = self.block(x.flatten(2).transpose(1, 2))
        return self.head(x.mean(dim=1))


def build() -> tuple[Network, tuple[torch.Tensor]]:
    """The trained network and an example input; here the weights are seeded, and the statistics are not 0 and 1."""
    torch.manual_seed(0)
    network = Network().eval()
    for norm in (network.bn1, network.bn2):
        nn.init.normal_(norm.running_mean, std=0.1)
        nn.init.uniform_(norm.running_var, 0.05, 0.3)
    return network, (torch.rand(2, 3, 32, 32),)
