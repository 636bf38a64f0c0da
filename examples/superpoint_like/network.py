"""A keypoint network in the manner of SuperPoint: a heat map, and the places where it is high."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Keypoints(nn.Module):
    """image [1, 1, H, W] to a score a pixel [H, W] and the keypoints' (row, column) [N, 2]; N depends on the image."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.detector = nn.Conv2d(64, 65, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cells = torch.softmax(self.detector(self.encoder(image)) * 8, 1)[:, :-1]
        scores = F.pixel_shuffle(cells, 8)
        highest = F.max_pool2d(scores, 9, stride=1, padding=4)
        kept = torch.where(scores == highest, scores, torch.zeros_like(scores))[0, 0]
        return kept, torch.nonzero(kept > 0.02)


def build() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Keypoints().eval(), torch.rand(1, 1, 64, 64)
