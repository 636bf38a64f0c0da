"""The network of digits.onnx, with its weights, for PyTorch (a factory) and for Paddle (a file that this writes).

python examples/digits/other_formats.py output/digits     writes output/digits/digits.json and .pdiparams
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

HERE = Path(__file__).parent
CHANNELS = (1, 8, 16, 16)
RENAMED = {"weight": "weight", "bias": "bias", "_mean": "running_mean", "_variance": "running_var"}


def weights() -> dict[str, np.ndarray]:
    """Arrays by the names that digits.onnx gives them."""
    graph = onnx.load(HERE / "digits.onnx").graph
    return {item.name: numpy_helper.to_array(item) for item in graph.initializer}


def digits():
    """The PyTorch module, and inputs of the test set's size: give it as other_formats.py:digits."""
    import torch
    from torch import nn

    class Digits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = itertools.pairwise(CHANNELS)
            self.convs = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in sizes)
            self.bns = nn.ModuleList(nn.BatchNorm2d(o) for o in CHANNELS[1:])
            self.fc = nn.Linear(CHANNELS[-1], 10)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            x = image
            for number, (conv, bn) in enumerate(zip(self.convs, self.bns, strict=True), 1):
                x = torch.relu(bn(conv(x)))
                if number == 2:
                    x = nn.functional.max_pool2d(x, 2)
            return torch.softmax(self.fc(x.mean(dim=(2, 3))), 1)

    module, known = Digits().eval(), weights()
    with torch.no_grad():
        for number, (conv, bn) in enumerate(zip(module.convs, module.bns, strict=True), 1):
            conv.weight.copy_(torch.from_numpy(known[f"conv{number}_weight"].copy()))
            for name in ("weight", "bias", "running_mean", "running_var"):
                getattr(bn, name).copy_(torch.from_numpy(known[f"bn{number}_{name}"].copy()))
        module.fc.weight.copy_(torch.from_numpy(known["fc_weight"].copy()))
        module.fc.bias.copy_(torch.from_numpy(known["fc_bias"].copy()))
    return module, {"image": torch.rand(360, 1, 8, 8)}


def write_paddle(folder: Path) -> None:
    """A Paddle inference model with the same weights."""
    import paddle
    from paddle import nn

    paddle.disable_signal_handler()  # Paddle's own handler of SIGTERM can wait for minutes for a lock

    class Digits(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            sizes = itertools.pairwise(CHANNELS)
            self.convs = nn.LayerList([nn.Conv2D(i, o, 3, padding=1, bias_attr=False) for i, o in sizes])
            self.bns = nn.LayerList([nn.BatchNorm2D(o) for o in CHANNELS[1:]])
            self.fc = nn.Linear(CHANNELS[-1], 10)

        def forward(self, image):
            x = image
            for number in range(3):
                x = nn.functional.relu(self.bns[number](self.convs[number](x)))
                if number == 1:
                    x = nn.functional.max_pool2d(x, 2, 2)
            return nn.functional.softmax(self.fc(x.mean([2, 3])), 1)

    layer, known = Digits(), weights()
    layer.eval()
    for number, (conv, bn) in enumerate(zip(layer.convs, layer.bns, strict=True), 1):
        conv.weight.set_value(known[f"conv{number}_weight"])
        for name, ours in (
            ("weight", "weight"),
            ("bias", "bias"),
            ("_mean", "running_mean"),
            ("_variance", "running_var"),
        ):
            getattr(bn, name).set_value(known[f"bn{number}_{ours}"])
    layer.fc.weight.set_value(known["fc_weight"].T.copy())
    layer.fc.bias.set_value(known["fc_bias"])
    folder.mkdir(parents=True, exist_ok=True)
    spec = paddle.static.InputSpec([None, 1, 8, 8], "float32", name="image")
    paddle.jit.save(layer, str(folder / "digits"), input_spec=[spec])


if __name__ == "__main__":
    write_paddle(Path(sys.argv[1] if len(sys.argv) > 1 else "output/digits"))
