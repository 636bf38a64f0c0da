"""Train a small network on scikit-learn's handwritten digits in Paddle, and save it as Paddle Inference reads it.

Needs paddlepaddle and scikit-learn; takes seconds on a CPU. The files are committed: run it only to make them anew.
They are digits.json and digits.pdiparams (PIR, Paddle 3), and the same weights as legacy.pdmodel and legacy.pdiparams
for Paddle 2 and its TensorRT. Training images, test images and labels are those of examples/digits.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

paddle.disable_signal_handler()  # Paddle's own handler of SIGTERM can wait for minutes for a lock

HERE = Path(__file__).parent
LEGACY = "FLAGS_enable_pir_api"
"""Paddle 3 writes the legacy format where this variable is 0 as it is imported."""


class Digits(nn.Layer):
    """Two conv-bn-relu blocks, a residual one, pooling, two linear layers and a softmax. [N,1,8,8] to [N,10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2D(1, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8)
        self.conv2, self.bn2 = nn.Conv2D(8, 16, 3, padding=1, bias_attr=False), nn.BatchNorm2D(16)
        self.conv3, self.bn3 = nn.Conv2D(16, 16, 3, padding=1, bias_attr=False), nn.BatchNorm2D(16)
        self.hidden, self.classes = nn.Linear(16 * 2 * 2, 24), nn.Linear(24, 10)

    def logits(self, image: paddle.Tensor) -> paddle.Tensor:
        """Before the softmax."""
        relu, pool = nn.functional.relu, nn.functional.max_pool2d
        x = pool(relu(self.bn1(self.conv1(image))), 2)
        x = relu(self.bn2(self.conv2(x)))
        x = pool(relu(self.bn3(self.conv3(x)) + x), 2)
        return self.classes(relu(self.hidden(x.flatten(1))))

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        return nn.functional.softmax(self.logits(image))


def split() -> tuple[np.ndarray, ...]:
    """Training and test images, [N,1,8,8] float32 from 0 to 1, then their labels; the test set is examples/digits'."""
    digits = load_digits()
    images = (digits.images[:, None] / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int64)
    return tuple(train_test_split(images, labels, test_size=360, stratify=labels, random_state=0))


def train(images: np.ndarray, labels: np.ndarray, epochs: int) -> Digits:
    """Adam with a one-cycle learning rate, in batches of 64."""
    paddle.seed(0)
    order, network = np.random.default_rng(0), Digits()
    steps = epochs * -(-len(images) // 64)
    schedule = paddle.optimizer.lr.OneCycleLR(max_learning_rate=1e-2, total_steps=steps)
    optimizer = paddle.optimizer.Adam(schedule, parameters=network.parameters())
    for _ in range(epochs):
        for chosen in np.array_split(order.permutation(len(images)), -(-len(images) // 64)):
            loss = nn.functional.cross_entropy(
                network.logits(paddle.to_tensor(images[chosen])), paddle.to_tensor(labels[chosen])
            )
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            schedule.step()
    network.eval()
    return network


def save(network: Digits, path: Path) -> None:
    """An inference model with a dynamic batch."""
    spec = paddle.static.InputSpec([None, 1, 8, 8], "float32", name="image")
    paddle.jit.save(network, str(path), input_spec=[spec])


def save_legacy(weights: Path, folder: Path) -> None:
    """The same weights in the legacy format, from a process that has PIR switched off."""
    command = [sys.executable, str(Path(__file__).resolve()), "--legacy_of", str(weights), "-o", str(folder)]
    subprocess.run(command, check=True, env={**os.environ, LEGACY: "0"})


def forget_where(path: Path) -> None:
    """Take out of a legacy program where on this machine its code was."""
    program = paddle.base.core.ProgramDesc(path.read_bytes())
    for block in map(program.block, range(program.num_blocks())):
        for operator in map(block.op, range(block.op_size())):
            operator.remove_attr("op_callstack")
    path.write_bytes(program.serialize_to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=HERE, help="folder of the files")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--legacy_of", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    args.output.mkdir(parents=True, exist_ok=True)
    if args.legacy_of:
        network = Digits()
        network.set_state_dict(paddle.load(str(args.legacy_of)))
        network.eval()
        save(network, args.output / "legacy")
        forget_where(args.output / "legacy.pdmodel")
        return
    train_images, test_images, train_labels, test_labels = split()
    network = train(train_images, train_labels, args.epochs)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        save(network, made / "digits")
        paddle.save(network.state_dict(), str(made / "weights.pdparams"))
        save_legacy(made / "weights.pdparams", made)
        for name in ("digits.json", "digits.pdiparams", "legacy.pdmodel", "legacy.pdiparams"):
            shutil.copy(made / name, args.output / name)
    right = int((network(paddle.to_tensor(test_images)).numpy().argmax(1) == test_labels).sum())
    print(f"accuracy on the test split: {right}/{len(test_labels)} = {right / len(test_labels):.4f}")


if __name__ == "__main__":
    main()
