"""ONNX files that are whole and make no sense: compared, or refused as the file's fault."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper
from onnx_models import model, value

import precision_debug
from precision_debug.errors import PrecisionDebugError

from .case import Lost
from .names import hostile_name

__all__ = ["odd_graphs"]

_TYPES = (1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21, 22, 23, 99, 0)
_SHAPES: tuple[Any, ...] = (
    [2], [], [0], [2, 0], [-3, 2], ["n", "n"], ["", "?"], None, [2**40, 2**20], [1] * 70, [2**62, 4],
)  # fmt: skip
_OPERATORS = ("Relu", "Identity", "Neg", "Exp", "Sqrt", "Log", "Foo", "Shape", "Add", "Cast", "NonZero")


def odd_graphs(random_: random.Random, folder: Path) -> None:
    """Types, shapes, names, weights and edges at random; status 3 says that an engine failed, not the file."""
    kind = random_.choice(_TYPES) if random_.random() < 0.4 else TensorProto.FLOAT
    shape = random_.choice(_SHAPES) if random_.random() < 0.4 else [2, 3]
    names = ["x", *(_name(random_, f"t{n}") for n in range(random_.randrange(1, 4)))]
    nodes = []
    for source, to in itertools.pairwise(names):
        operator = random_.choice(_OPERATORS) if random_.random() < 0.3 else "Relu"
        read = [random_.choice(names)] if random_.random() < 0.1 else [source]  # maybe a circle
        read += [random_.choice(("w", source, "nowhere", ""))] * (operator == "Add")
        more = {"to": random_.choice(_TYPES)} if operator == "Cast" else {}
        nodes.append(helper.make_node(operator, read, [to], name=_name(random_, ""), **more))
    proto = model(nodes, [value("x", shape, kind)], [value(names[-1], None, kind)])
    if random_.random() < 0.3:
        proto.graph.initializer.append(_weight(random_))
    if random_.random() < 0.1:
        proto.graph.output.append(proto.graph.output[0])
    Path("m.onnx").write_bytes(proto.SerializeToString())
    try:
        report = precision_debug.compare("m.onnx", run_mode="ort_opt", explain="off", output="o.json")
    except PrecisionDebugError as error:
        if error.exit_status != 2 and "while running" not in str(error):
            raise Lost(f"status {error.exit_status} for a file: {error}") from error
        return
    if report.exit_status == 0 and not any(row.comparison for row in report.outputs):
        raise Lost("a pass without an output that was compared")
    if not onnx.load("m.onnx").graph.output:
        raise Lost("a pass without outputs")


def _name(random_: random.Random, otherwise: str) -> str:
    found = hostile_name(random_) if random_.random() < 0.2 else otherwise
    return found.encode("utf-8", "replace").decode()


def _weight(random_: random.Random) -> TensorProto:
    dims = random_.choice(([2, 3], [-2], [2**33], [2**62, 16], [0], []))
    weight = TensorProto(name=random_.choice(("w", "x", "")), data_type=random_.choice((1, 1, 7, 99)), dims=dims)
    weight.raw_data = random_.randbytes(random_.choice((24, 4, 0, 400)))
    return weight
