"""Build ResNet-18 or ResNet-50 as an ONNX file, without a download and without torch: onnx.helper and seeded weights.

Convolutions are He-initialised (fan-in), so that a ReLU network keeps the scale of its activations. BatchNormalization
gets running statistics near the true ones of unit-variance inputs; the last one of a residual branch has a smaller
gain, as in trained networks, so that sums along the shortcut path do not grow block after block.
Source of the architecture: He et al., Deep Residual Learning for Image Recognition, 2015; stride in the 3x3 (v1.5).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
WIDTHS = (64, 128, 256, 512)
CLASSES = 1000


@dataclass(kw_only=True)
class GraphBuilder:
    """Collects nodes and weights; every method returns the name of the tensor that it made."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def node(self, op_type: str, name: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        output = output or f"{name}_out"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=name, **attributes))
        return output

    def conv(self, name: str, x: str, channels: tuple[int, int], kernel: int, stride: int = 1) -> str:
        """``channels`` are (inside, outside). Weights of variance 2 / fan-in; padding keeps the size at stride 1."""
        inside, outside = channels
        fan_in = inside * kernel * kernel
        weight = self.rng.normal(0.0, np.sqrt(2.0 / fan_in), (outside, inside, kernel, kernel))
        shape = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return self.node("Conv", name, [x, self.constant(f"{name}_weight", weight)], **shape)

    def batch_norm(self, name: str, x: str, channels: int, *, gain: float = 1.0) -> str:
        """Scale around ``gain``, small shifts, running mean around 0 and running variance around 2."""
        parameters = {
            "scale": gain * self.rng.uniform(0.8, 1.2, channels),
            "shift": self.rng.normal(0.0, 0.1, channels),
            "mean": self.rng.normal(0.0, 0.2, channels),
            "var": self.rng.uniform(1.5, 2.5, channels),
        }
        names = [self.constant(f"{name}_{part}", value) for part, value in parameters.items()]
        return self.node("BatchNormalization", name, [x, *names], epsilon=1e-5)

    def conv_bn(
        self, name: str, x: str, channels: tuple[int, int], kernel: int, stride: int = 1, *, gain: float = 1.0
    ) -> str:
        return self.batch_norm(f"{name}_bn", self.conv(name, x, channels, kernel, stride), channels[1], gain=gain)


def basic_block(g: GraphBuilder, name: str, x: str, channels: tuple[int, int], stride: int) -> str:
    """Two 3x3 convolutions (ResNet-18)."""
    width = channels[1]
    y = g.node("Relu", f"{name}_relu1", [g.conv_bn(f"{name}_conv1", x, channels, 3, stride)])
    y = g.conv_bn(f"{name}_conv2", y, (width, width), 3, gain=0.5)
    return close_block(g, name, (x, y), channels, stride)


def bottleneck(g: GraphBuilder, name: str, x: str, channels: tuple[int, int], stride: int) -> str:
    """1x1, 3x3, 1x1 with a quarter of the width in the middle (ResNet-50)."""
    inside, outside = channels
    width = outside // 4
    y = g.node("Relu", f"{name}_relu1", [g.conv_bn(f"{name}_conv1", x, (inside, width), 1)])
    y = g.node("Relu", f"{name}_relu2", [g.conv_bn(f"{name}_conv2", y, (width, width), 3, stride)])
    y = g.conv_bn(f"{name}_conv3", y, (width, outside), 1, gain=0.5)
    return close_block(g, name, (x, y), channels, stride)


def close_block(g: GraphBuilder, name: str, pair: tuple[str, str], channels: tuple[int, int], stride: int) -> str:
    """Add the shortcut to the branch (``pair``), projected where size or width changes, and apply ReLU."""
    x, y = pair
    if stride != 1 or channels[0] != channels[1]:
        x = g.conv_bn(f"{name}_shortcut", x, channels, 1, stride)
    return g.node("Relu", f"{name}_relu", [g.node("Add", f"{name}_add", [y, x])])


def build(depth: int = 18, *, batch: int | str = 1, image: int = 224, seed: int = 0) -> onnx.ModelProto:
    """ResNet of the given depth for inputs [batch, 3, image, image]; ``batch`` "dynamic" leaves it open."""
    g = GraphBuilder(rng=np.random.default_rng(seed))
    rows: int | str = "N" if batch == "dynamic" else int(batch)
    x = g.node("Relu", "stem_relu", [g.conv_bn("stem_conv", "image", (3, WIDTHS[0]), 7, 2)])
    x = g.node("MaxPool", "stem_pool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    block, expansion = (basic_block, 1) if depth == 18 else (bottleneck, 4)
    channels = WIDTHS[0]
    for stage, (width, count) in enumerate(zip(WIDTHS, BLOCKS[depth], strict=True), start=1):
        for number in range(1, count + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            x = block(g, f"stage{stage}_block{number}", x, (channels, expansion * width), stride)
            channels = expansion * width
    x = g.node("Flatten", "flatten", [g.node("GlobalAveragePool", "gap", [x])])
    weight = g.rng.normal(0.0, np.sqrt(1.0 / channels), (CLASSES, channels))
    fc = [g.constant("fc_weight", weight), g.constant("fc_bias", np.zeros(CLASSES))]
    x = g.node("Gemm", "fc", [x, *fc], output="logits", transB=1)
    g.node("Softmax", "softmax", [x], output="probabilities", axis=1)
    graph = helper.make_graph(
        g.nodes,
        f"resnet{depth}",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [rows, 3, image, image])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [rows, CLASSES])],
        g.weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    proto.producer_name = "examples/resnet/build.py"
    onnx.checker.check_model(proto, full_check=True)
    return proto


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, choices=sorted(BLOCKS), default=18)
    parser.add_argument("--batch", default="1", help='a number, or "dynamic"')
    parser.add_argument("--image", type=int, default=224, help="height and width of the input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="default: resnet<depth>.onnx beside this script")
    args = parser.parse_args()
    if args.batch != "dynamic" and not (args.batch.isdigit() and int(args.batch) > 0):
        parser.error(f'--batch {args.batch}: expected a number above 0, or "dynamic"')
    if args.image < 32:
        parser.error(f"--image {args.image}: five halvings need at least 32")
    output = args.output or Path(__file__).parent / f"resnet{args.depth}.onnx"
    proto = build(args.depth, batch=args.batch, image=args.image, seed=args.seed)
    output.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, output)
    print(f"{output}: ResNet-{args.depth}, {len(proto.graph.node)} nodes, {output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
