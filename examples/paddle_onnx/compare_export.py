"""A Paddle model beside the ONNX file that paddle2onnx makes of it: first a right one, then one that lost a bias."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import paddle
import paddle2onnx
from paddle import nn

import precision_debug

paddle.disable_signal_handler()  # Paddle's own handler of SIGTERM can wait for minutes for a lock


class Network(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2D(3, 16, 3, stride=2, padding=1), nn.BatchNorm2D(16)
        self.body, self.head = nn.Conv2D(16, 16, 3, padding=1), nn.Linear(16, 10)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        x = nn.functional.relu(self.norm(self.stem(image)))
        return self.head((x + nn.functional.relu(self.body(x))).mean([2, 3]))


def export() -> tuple[Path, Path]:
    """The model as Paddle saves it, and as paddle2onnx writes it."""
    paddle.seed(0)
    network = Network()
    network.stem.bias.set_value(paddle.linspace(-0.5, 0.5, 16))
    network.eval()
    saved = Path("output/paddle_onnx/inference")
    paddle.jit.save(network, str(saved), input_spec=[paddle.static.InputSpec([1, 3, 32, 32], "float32", "image")])
    program, params, exported = (f"{saved}{ending}" for ending in (".json", ".pdiparams", ".onnx"))
    paddle2onnx.export(
        program, params, exported, opset_version=17, auto_upgrade_opset=False, verbose=False, enable_optimize=False
    )
    return Path(program), Path(exported)


def without_a_bias(exported: Path) -> Path:
    """The same file after a conversion that forgot the first convolution's bias."""
    model = onnx.load(exported)
    convolution = next(node for node in model.graph.node if "conv2d_0.w_0" in node.input)
    node = next(node for node in model.graph.node if convolution.output[0] in node.input)  # an Add of the bias
    node.op_type = "Identity"
    del node.input[:]
    node.input.append(convolution.output[0])
    path = exported.with_name("without_a_bias.onnx")
    onnx.save(model, path)
    return path


def main() -> None:
    program, exported = export()
    feeds = {"image": np.random.default_rng(0).random((1, 3, 32, 32), dtype=np.float32)}
    for path in (exported, without_a_bias(exported)):
        report = precision_debug.compare(
            path, run_mode="ort_fp32", baseline="cpu_fp32", baseline_model=program, inputs=feeds,
            output=f"output/paddle_onnx/{path.stem}.xlsx",
        )  # fmt: skip
        print(f"\n{path.name}: {report.verdict}")
        for note in report.notes:
            print(f"  {note}")


if __name__ == "__main__":
    main()
