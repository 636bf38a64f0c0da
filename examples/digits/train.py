"""Train the digits CNN on scikit-learn's bundled digits and write digits.onnx, test_images.npz and test_labels.npy.

Needs torch, scikit-learn and onnx; takes seconds on a CPU. The files are committed, so run it only to make them anew.
BatchNormalization stays a node of its own in the ONNX file, which leaves an inference engine something to fuse.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

CHANNELS = (1, 8, 16, 16)
POOL_AFTER = 2  # the convolution block that is followed by the 2x2 max pooling
CLASSES = 10


class DigitsNet(nn.Module):
    """Three conv-bn-relu blocks, one max pooling, global average pooling, one linear layer. [N,1,8,8] -> [N,10]."""

    def __init__(self) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(CHANNELS))
        self.convs = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in pairs)
        self.bns = nn.ModuleList(nn.BatchNorm2d(o) for _, o in pairs)
        self.fc = nn.Linear(CHANNELS[-1], CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, (conv, bn) in enumerate(zip(self.convs, self.bns, strict=True), start=1):
            x = torch.relu(bn(conv(x)))
            if number == POOL_AFTER:
                x = nn.functional.max_pool2d(x, 2)
        return self.fc(x.mean(dim=(2, 3)))


def load_split(seed: int) -> tuple[np.ndarray, ...]:
    """Train and test images, [N,1,8,8] float32 from 0 to 1, then train and test labels, [N] int64; 360 for the test."""
    digits = load_digits()
    images = (digits.images[:, None] / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int64)
    return tuple(train_test_split(images, labels, test_size=360, stratify=labels, random_state=seed))


def train(images: np.ndarray, labels: np.ndarray, *, epochs: int, seed: int) -> DigitsNet:
    """Adam with a one-cycle learning rate."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    model = DigitsNet()
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    batch = 64
    steps = epochs * -(-len(x) // batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def to_onnx(model: DigitsNet) -> onnx.ModelProto:
    """The trained weights as a graph whose nodes and tensors bear readable names; the batch dimension is dynamic."""
    weights: list[TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def constant(name: str, value: torch.Tensor) -> str:
        weights.append(numpy_helper.from_array(value.detach().numpy(), name))
        return name

    def node(op_type: str, name: str, inputs: list[str], output: str = "", **attributes: object) -> str:
        output = output or f"{name}_out"
        nodes.append(helper.make_node(op_type, inputs, [output], name=name, **attributes))
        return output

    x = "image"
    for number, (conv, bn) in enumerate(zip(model.convs, model.bns, strict=True), start=1):
        kernel = constant(f"conv{number}_weight", conv.weight)
        x = node("Conv", f"conv{number}", [x, kernel], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        names = ("weight", "bias", "running_mean", "running_var")
        parameters = [constant(f"bn{number}_{name}", getattr(bn, name)) for name in names]
        x = node("BatchNormalization", f"bn{number}", [x, *parameters], epsilon=bn.eps)
        x = node("Relu", f"relu{number}", [x])
        if number == POOL_AFTER:
            x = node("MaxPool", "pool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = node("GlobalAveragePool", "gap", [x])
    x = node("Flatten", "flatten", [x])
    fc = [constant("fc_weight", model.fc.weight), constant("fc_bias", model.fc.bias)]
    x = node("Gemm", "fc", [x, *fc], output="logits", transB=1)
    node("Softmax", "softmax", [x], output="probabilities", axis=1)
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", CLASSES])],
        weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    proto.producer_name = "examples/digits/train.py"
    onnx.checker.check_model(proto, full_check=True)
    return proto


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent, help="folder of the three files")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    train_images, test_images, train_labels, test_labels = load_split(args.seed)
    model = train(train_images, train_labels, epochs=args.epochs, seed=args.seed)
    with torch.no_grad():
        predicted = model(torch.from_numpy(test_images)).argmax(dim=1).numpy()
    args.output.mkdir(parents=True, exist_ok=True)
    onnx.save(to_onnx(model), args.output / "digits.onnx")
    np.savez_compressed(args.output / "test_images.npz", image=test_images)
    np.save(args.output / "test_labels.npy", test_labels)
    right = int((predicted == test_labels).sum())
    print(f"accuracy on the test split: {right}/{len(test_labels)} = {right / len(test_labels):.4f}")


if __name__ == "__main__":
    main()
