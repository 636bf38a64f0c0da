"""The same network ported to Paddle with the weights carried over, and four ports with one common mistake each."""

from __future__ import annotations

import network_torch
import paddle
from paddle import nn
from paddle.nn import functional as F


class Block(nn.Layer):
    def __init__(self, width: int = 32, heads: int = 4, epsilon: float = 1e-6, tanh: bool = False) -> None:
        super().__init__()
        self.heads, self.tanh = heads, tanh
        self.norm1, self.norm2 = nn.LayerNorm(width, epsilon=1e-6), nn.LayerNorm(width, epsilon=epsilon)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        n, places, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape([n, places, 3, self.heads, -1]).transpose([2, 0, 3, 1, 4]).unbind(0)
        scores = F.softmax(q @ k.transpose([0, 1, 3, 2]) * (width // self.heads) ** -0.5, axis=-1)
        x = x + self.proj((scores @ v).transpose([0, 2, 1, 3]).reshape([n, places, width]))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate=self.tanh))


class Network(nn.Layer):
    def __init__(self, padding: int = 1, **block: float) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2D(3, 16, 3, padding=1), nn.BatchNorm2D(16)
        self.conv2, self.bn2 = nn.Conv2D(16, 32, 3, stride=2, padding=padding), nn.BatchNorm2D(32)
        self.pool = nn.MaxPool2D(2)
        self.block = Block(**block)
        self.head = nn.Linear(32, 10)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        x = F.relu(self.bn1(self.conv1(image)))
        x = self.pool(F.relu(self.bn2(self.conv2(x))))
        x = self.block(x.flatten(2).transpose([0, 2, 1]))
        return self.head(x.mean(axis=1))


def carry_over(network: Network, forgotten: str = "") -> tuple[Network, paddle.Tensor]:
    """Give ``network`` the weights of the one in PyTorch, and its example input; ``forgotten`` is not transposed."""
    source, (image,) = network_torch.build()
    linear = {name for name, layer in source.named_modules() if type(layer).__name__ == "Linear"}
    state = {}
    for name, tensor in source.state_dict().items():
        owner, _, kind = name.rpartition(".")
        value = tensor.numpy()
        if owner in linear and kind == "weight" and owner != forgotten:
            value = value.T  # PyTorch keeps [out, in], Paddle [in, out]
        if kind != "num_batches_tracked":  # Paddle counts no batches
            new = name.replace("running_mean", "_mean").replace("running_var", "_variance")
            state[new] = paddle.to_tensor(value.copy())
    missing, unexpected = network.set_state_dict(state)
    if missing or unexpected:
        raise ValueError(f"weights without a partner: {missing} {unexpected}")
    network.eval()
    return network, paddle.to_tensor(image.numpy())


def right() -> tuple[Network, paddle.Tensor]:
    return carry_over(Network())


def epsilon() -> tuple[Network, paddle.Tensor]:
    """LayerNorm with Paddle's default epsilon."""
    return carry_over(Network(epsilon=1e-5))


def gelu() -> tuple[Network, paddle.Tensor]:
    return carry_over(Network(tanh=True))


def transposed() -> tuple[Network, paddle.Tensor]:
    """A square Linear weight carried over as it is: its shape fits."""
    return carry_over(Network(), forgotten="block.proj")


def padding() -> tuple[Network, paddle.Tensor]:
    """Padded at the far edges alone, as TensorFlow's SAME does where the stride is 2."""
    return carry_over(Network(padding=[0, 1, 0, 1]))
