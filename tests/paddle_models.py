"""Small Paddle models with seeded weights, for tests and for the scripts in tests/gpu.

``export`` writes a model with whatever Paddle is installed: the legacy format (.pdmodel) with 2.x, PIR (.json) with
3.x. The .pdmodel files in tests/data/paddle hold programs without weights; ``write_params`` makes weights for them.
They were made with paddlepaddle 2.6.2, numpy 1.26 and protobuf 3.20 by::

    python tests/paddle_models.py tests/data/paddle
"""

from __future__ import annotations

import atexit
import functools
import math
import shutil
import struct
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "MODELS", "export", "export_quantised", "feeds", "legacy", "params_of", "pir", "quantised", "write_params",
]  # fmt: skip

DATA = Path(__file__).parent / "data" / "paddle"


def _cnn() -> Any:
    """Conv, batch norm, relu twice with a residual, pooling, a linear layer and a softmax."""
    from paddle import nn

    class Cnn(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8)
            self.conv2, self.bn2 = nn.Conv2D(8, 8, 3, padding=1), nn.BatchNorm2D(8)
            self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
            self.pool, self.flatten = nn.AdaptiveAvgPool2D(1), nn.Flatten()
            self.fc, self.softmax = nn.Linear(8, 10), nn.Softmax()

        def forward(self, x: Any) -> Any:
            first = self.relu1(self.bn1(self.conv1(x)))
            second = self.relu2(self.bn2(self.conv2(first)) + first)
            return self.softmax(self.fc(self.flatten(self.pool(second))))

    return Cnn()


def _convs() -> Any:
    """Convolutions only, a residual, pooling, and a 1x1 convolution as classifier: what TensorRT takes with a static
    shape too, and wide enough that it has int8 and float16 kernels for it. The first one has a bias, so that Paddle
    does not fold its batch norm; the others have none.
    """
    from paddle import nn

    class Convs(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2D(3, 64, 3, padding=1), nn.BatchNorm2D(64)
            self.conv2, self.bn2 = nn.Conv2D(64, 64, 3, padding=1, bias_attr=False), nn.BatchNorm2D(64)
            self.conv3, self.bn3 = nn.Conv2D(64, 128, 3, padding=1, stride=2, bias_attr=False), nn.BatchNorm2D(128)
            self.relu1, self.relu2, self.relu3 = nn.ReLU(), nn.ReLU(), nn.ReLU()
            self.small, self.pool, self.classes = nn.MaxPool2D(2), nn.AdaptiveAvgPool2D(1), nn.Conv2D(128, 32, 1)
            self.flatten = nn.Flatten()

        def forward(self, x: Any) -> Any:
            first = self.small(self.relu1(self.bn1(self.conv1(x))))
            second = self.relu2(self.bn2(self.conv2(first)) + first)
            third = self.relu3(self.bn3(self.conv3(second)))
            return self.flatten(self.classes(self.pool(third)))

    return Convs()


def _conv_norm() -> Any:
    """A convolution without bias or padding before a batch norm, which a pass folds into it."""
    from paddle import nn

    return nn.Sequential(
        nn.Conv2D(3, 8, 3, bias_attr=False), nn.BatchNorm2D(8), nn.ReLU(), nn.AdaptiveAvgPool2D(1), nn.Flatten(),
        nn.Linear(8, 4),
    )  # fmt: skip


def _mlp() -> Any:
    """Three linear layers; the middle one is where tests plant a fault."""
    from paddle import nn

    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def _offset() -> Any:
    """A linear layer, an offset that is added and taken away again, and another linear layer."""
    import paddle
    from paddle import nn

    class Offset(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.relu = nn.Linear(16, 32), nn.Linear(32, 4), nn.ReLU()
            self.offset = self.create_parameter([32], dtype="float32")

        def forward(self, x: Any) -> Any:
            high = paddle.add(self.relu(self.first(x)), self.offset)
            return self.second(paddle.subtract(high, self.offset))

    return Offset()


def _branches() -> Any:
    """What is hard to show: several outputs of an operator, a recurrent layer, integers, control flow."""
    import paddle
    from paddle import nn

    class Branches(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.lstm, self.narrow = nn.Linear(16, 48), nn.LSTM(16, 8), nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            query, key, value = paddle.split(self.wide(x), 3, axis=-1)
            mixed = paddle.matmul(paddle.matmul(query, key, transpose_y=True) * 0.05, value) + x
            states, _ = self.lstm(paddle.stack(paddle.unbind(mixed, axis=1), axis=1))
            scores = self.narrow(states)
            best, place = paddle.topk(scores, 2, axis=-1)
            joined = paddle.concat([best, scores], axis=-1)
            if paddle.sum(joined) > 0:  # noqa: SIM108
                joined = joined * 2.0
            else:
                joined = joined + 1.0
            return joined, place

    return Branches()


def _loop() -> Any:
    """A while loop that carries a tensor, and a branch behind it."""
    import paddle
    from paddle import nn

    class Loop(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(16, 16), nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            number = paddle.zeros([1], "int32")
            state = self.inner(x)
            while number < 3:
                state = paddle.tanh(self.inner(state))
                number = number + 1
            if paddle.sum(state) > 0:  # noqa: SIM108
                state = paddle.nn.functional.relu(state * 2)
            else:
                state = state - 1
            return self.outer(state)

    return Loop()


def _encoder() -> Any:
    """Two layers of a transformer encoder, 64 wide, 4 heads."""
    from paddle import nn

    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, activation="gelu")
    return nn.TransformerEncoder(layer, 2)


def _resnet18() -> Any:
    from paddle.vision.models import resnet18

    return resnet18(pretrained=False)


def _mobilenet_v3() -> Any:
    """Each kind of MobileNetV3-small's blocks once: squeezed or not, either activation, with and without a stride and
    a sum. Its eleven blocks repeat them."""
    from paddle.vision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    blocks = (
        (16, 3, 16, 16, True, "relu", 2), (16, 3, 72, 24, False, "relu", 2), (24, 3, 88, 24, False, "relu", 1),
        (24, 5, 96, 40, True, "hardswish", 2), (40, 5, 120, 48, True, "hardswish", 1),
        (48, 5, 144, 48, True, "hardswish", 1),
    )  # fmt: skip
    return MobileNetV3([InvertedResidualConfig(*block, 1.0) for block in blocks], last_channel=128, num_classes=100)


MODELS: Mapping[str, tuple[Any, tuple[int, ...]]] = {
    "cnn": (_cnn, (3, 16, 16)),
    "convs": (_convs, (3, 32, 32)),
    "conv_norm": (_conv_norm, (3, 16, 16)),
    "mlp": (_mlp, (16,)),
    "offset": (_offset, (16,)),
    "branches": (_branches, (6, 16)),
    "loop": (_loop, (16,)),
    "encoder": (_encoder, (12, 64)),
    "resnet18": (_resnet18, (3, 64, 64)),
    "mobilenet_v3": (_mobilenet_v3, (3, 64, 64)),
}


def feeds(name: str, batch: int = 2, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Normal random values for the one input "x" of a model."""
    shape = (batch, *MODELS[name][1])
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


def export(name: str, folder: Path, seed: int = 0, change: Any = None) -> Path:
    """Write a model into ``folder``; returns the program's path. Batch norm's statistics are not the trivial 0 and 1.

    change(weights): may edit the weights, by their name in the layer, first.
    """
    import paddle

    paddle.seed(seed)
    build, shape = MODELS[name]
    with paddle.utils.unique_name.guard():  # names that do not depend on what was exported before
        net = build()
        rng = np.random.default_rng(seed)
        weights = {key: _weight(key, tuple(value.shape), rng) for key, value in net.state_dict().items()}
        if change is not None:
            change(weights)
        for key, value in net.state_dict().items():
            value.set_value(weights[key])
        net.eval()
        spec = paddle.static.InputSpec([None, *shape], "float32", name="x")
        net = paddle.jit.to_static(net, input_spec=[spec], full_graph=True)
        paddle.jit.save(net, str(folder / name))
    found = [path for path in (folder / f"{name}.json", folder / f"{name}.pdmodel") if path.exists()]
    return found[0]


def export_quantised(name: str, folder: Path) -> Path:
    """The same with int8 scales by Paddle's own post-training quantisation, on four seeded batches."""
    import paddle
    from paddle.quantization import PTQ, QuantConfig
    from paddle.quantization.observers import AbsmaxObserver

    build, shape = MODELS[name]
    with paddle.utils.unique_name.guard():
        net = build()
        rng = np.random.default_rng(0)
        for key, value in net.state_dict().items():
            value.set_value(_weight(key, tuple(value.shape), rng))
        net.eval()
        observer = AbsmaxObserver(quant_bits=8)
        config = QuantConfig(activation=None, weight=None)
        config.add_type_config([paddle.nn.Conv2D, paddle.nn.Linear], activation=observer, weight=observer)
        quantiser = PTQ(config)
        watched = quantiser.quantize(net)
        for seed in range(4):
            watched(paddle.to_tensor(feeds(name, seed=seed)["x"]))
        net = quantiser.convert(watched)
        net.eval()
        spec = paddle.static.InputSpec([None, *shape], "float32", name="x")
        net = paddle.jit.to_static(net, input_spec=[spec], full_graph=True)
        paddle.jit.save(net, str(folder / f"{name}_int8"))
    return folder / f"{name}_int8.pdmodel"


def quantised(name: str, folder: Path) -> Path:
    """A committed quantised program with its weights, in ``folder``."""
    for suffix in (".pdmodel", ".pdiparams"):
        (folder / f"{name}_int8{suffix}").write_bytes(zlib.decompress((DATA / f"{name}_int8{suffix}.z").read_bytes()))
    return folder / f"{name}_int8.pdmodel"


@functools.cache
def pir(name: str) -> Path:
    """A model exported by the Paddle 3 that is installed; kept until the process ends."""
    folder = tempfile.mkdtemp(prefix="paddle_models-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return export(name, Path(folder))


def legacy(name: str, folder: Path, seed: int = 0, change: Any = None) -> Path:
    """A committed legacy program in ``folder`` with seeded weights; ``change(weights)`` may edit them first."""
    program = zlib.decompress((DATA / f"{name}.pdmodel.z").read_bytes())
    path = folder / f"{name}.pdmodel"
    path.write_bytes(program)
    rng = np.random.default_rng(seed)
    weights = {key: _weight(key, shape, rng) for key, shape in params_of(program).items()}
    if change is not None:
        change(weights)
    write_params(path.with_suffix(".pdiparams"), weights)
    return path


def _weight(name: str, shape: tuple[int, ...], rng: Any) -> np.ndarray[Any, Any]:
    """He's initialisation for matrices and kernels, values around 1 or 0 for the rest."""
    if len(shape) > 1:
        fan_in = shape[0] if len(shape) == 2 else math.prod(shape[1:])
        values = rng.standard_normal(shape) * math.sqrt(2 / fan_in)
    elif name.endswith((".w_2", "_variance", ".w_0", ".weight")):
        values = rng.uniform(0.5, 1.5, shape)
    else:
        values = rng.standard_normal(shape) * 0.1
    return np.asarray(values, np.float32)


def write_params(path: Path, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Paddle's save_combine format: float32 tensors one after the other, ordered by name.

    A tensor is: uint32 version 0, uint64 LoD levels 0, uint32 version 0, int32 length of the description, the
    description (protobuf: field 1 data type 5, field 2 one varint a dimension), the values.
    """
    with path.open("wb") as file:
        for name in sorted(weights):
            array = np.ascontiguousarray(weights[name], np.float32)
            about = b"\x08\x05" + b"".join(b"\x10" + _varint(dim) for dim in array.shape)
            file.write(struct.pack("<IQIi", 0, 0, 0, len(about)) + about + array.tobytes())


def params_of(program: bytes) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a legacy program's parameters, in the program's order."""
    found = {}
    block = next(value for number, value in _fields(program) if number == 1)
    for number, value in _fields(block):
        if number != 3:
            continue
        var = dict(_fields(value))
        if not var.get(3) or var[1] == b"feed" or var[1] == b"fetch":
            continue
        tensor = dict(_fields(dict(_fields(var[2]))[3]))[1]
        found[var[1].decode()] = tuple(dim for key, dim in _fields(tensor) if key == 2)
    return found


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    place = 0

    def varint() -> int:
        nonlocal place
        result = shift = 0
        while True:
            byte = data[place]
            place += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while place < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:
            size = varint()
            yield tag >> 3, data[place : place + size]
            place += size
        else:
            place += 8 if tag & 7 == 1 else 4


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for model in sys.argv[2:] or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            exported = export(model, Path(scratch))
            (target / f"{model}.pdmodel.z").write_bytes(zlib.compress(exported.read_bytes(), 9))
            if model == "conv_norm":
                exported = export_quantised(model, Path(scratch))
                for path in (exported, exported.with_suffix(".pdiparams")):
                    (target / f"{path.name}.z").write_bytes(zlib.compress(path.read_bytes(), 9))
            print(model)
