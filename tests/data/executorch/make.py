"""Makes the folders beside it again: executorch 1.5.1 (CPython 3.11, x86-64, in an environment of its own).

The digits model as a torch module of the same weights, lowered with XNNPACK, an operator a delegate (per_op_mode), so
that its ETDump has what each of them wrote; and by the portable kernels. In the wrong one a bias of the second block is
off by 1.5. Of the debug buffer what is behind the last tensor is cut off.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

HERE = Path(__file__).parent
DIGITS = HERE.parents[2] / "examples" / "digits"


class Block(torch.nn.Module):
    def __init__(self, number: int, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        kernel = weights[f"conv{number}_weight"]
        self.conv = torch.nn.Conv2d(kernel.shape[1], kernel.shape[0], 3, padding=1, bias=False)
        self.bn = torch.nn.BatchNorm2d(kernel.shape[0])
        self.relu = torch.nn.ReLU()
        self.conv.weight.data = kernel
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(self.bn, name).data = weights[f"bn{number}_{name}"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.bn(self.conv(x)))


class Digits(torch.nn.Module):
    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.b1, self.b2, self.b3 = (Block(number, weights) for number in (1, 2, 3))
        self.pool, self.gap = torch.nn.MaxPool2d(2), torch.nn.AdaptiveAvgPool2d(1)
        self.flatten, self.fc, self.softmax = torch.nn.Flatten(), torch.nn.Linear(16, 10), torch.nn.Softmax(1)
        self.fc.weight.data, self.fc.bias.data = weights["fc_weight"], weights["fc_bias"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.softmax(self.fc(self.flatten(self.gap(self.b3(self.pool(self.b2(self.b1(x))))))))


def run(module: torch.nn.Module, image: torch.Tensor, name: str, partitioners: list[object]) -> None:
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    work = Path(tempfile.mkdtemp())
    program = torch.export.export(module, (image,))
    made = to_edge_transform_and_lower(program, partitioner=partitioners, generate_etrecord=True).to_executorch()
    (work / "m.pte").write_bytes(made.buffer)
    made.get_etrecord().save(str(work / "m.etrecord"))
    loaded = portable_lib._load_for_executorch(str(work / "m.pte"), enable_etdump=True, debug_buffer_size=1 << 20)
    loaded.run_method("forward", (image,))
    loaded.write_etdump_result_to_file(str(work / "m.etdump"), str(work / "m.dbg"))
    (HERE / name).mkdir(exist_ok=True)
    content = (work / "m.dbg").read_bytes()
    (HERE / name / "m.dbg").write_bytes(content.rstrip(b"\0") + b"\0" * 64)
    for ending in ("etdump", "etrecord"):
        if not (name.startswith("portable") and ending == "etrecord"):
            shutil.copy(work / f"m.{ending}", HERE / name)


def main() -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    weights = {one.name: torch.from_numpy(numpy_helper.to_array(one).copy())
               for one in onnx.load(DIGITS / "digits.onnx").graph.initializer}  # fmt: skip
    image = torch.from_numpy(np.load(DIGITS / "test_images.npz")["image"][:1].copy())
    run(Digits(weights).eval(), image, "xnnpack", [XnnpackPartitioner(per_op_mode=True)])
    weights["bn2_bias"][5] += 1.5
    run(Digits(weights).eval(), image, "xnnpack_wrong", [XnnpackPartitioner(per_op_mode=True)])
    run(Digits(weights).eval(), image, "portable_wrong", [])


if __name__ == "__main__":
    main()
