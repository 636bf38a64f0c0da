"""PyTorch modules with planted faults for ``kept_fresh``: each function makes one with its example inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Affine(nn.Module):
    def __init__(self, scale: float = 1.0, offset: float = 0.0) -> None:
        super().__init__()
        self.scale, self.offset = scale, offset

    def forward(self, x: Any) -> Any:
        if self.scale != 1.0:
            x = x * self.scale
        return x + self.offset if self.offset else x


class Normed(nn.Module):
    """A norm written out: its squares overflow in FP16 where its input is large."""

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))


class Angles(nn.Module):
    """Sines and cosines of large angles, as a rotary embedding computes them."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("freq", 2.0 ** -torch.arange(size // 2, dtype=torch.float32))

    def forward(self, position: Any) -> Any:
        angle = position[..., None] * self.freq
        return torch.cat([angle.sin(), angle.cos()], -1)


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.angles, self.mix = nn.Linear(16, 16), Angles(16), nn.Linear(16, 16)
        self.last = nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        position = torch.arange(300, 300 + x.shape[1], device=x.device)
        return self.last(torch.tanh(self.mix(self.first(x) * self.angles(position))))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = Affine(offset=2500.0), Affine(offset=-2500.0)
        self.rnn, self.loud, self.norm = nn.GRU(16, 16, batch_first=True), Affine(scale=900.0), Normed()
        self.last = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        h, _ = self.rnn(self.down(self.up(x)))
        return self.last(self.norm(self.loud(h)))


def tokens() -> Any:
    return torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))


def two_offsets() -> Any:
    torch.manual_seed(3)
    parts = [nn.Linear(16, 16), Affine(offset=2000.0), Affine(offset=-2000.0), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(),
             nn.Linear(16, 16), Affine(offset=3000.0), Affine(offset=-3000.0), nn.Linear(16, 8)]  # fmt: skip
    return nn.Sequential(*parts), tokens()


def loud_norm() -> Any:
    torch.manual_seed(4)
    parts = [nn.Linear(16, 16), nn.Tanh(), Affine(scale=1200.0), Normed(), nn.Linear(16, 16), nn.GELU(),
             nn.Linear(16, 8)]  # fmt: skip
    return nn.Sequential(*parts), tokens()


def rotary() -> Any:
    torch.manual_seed(5)
    return Rotary(), tokens()


def gated() -> Any:
    torch.manual_seed(6)
    return Gated(), tokens()


def far_convolution() -> Any:
    torch.manual_seed(7)
    parts = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), Affine(offset=1500.0),
             nn.InstanceNorm2d(8), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1)]  # fmt: skip
    return nn.Sequential(*parts), torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))
