"""Ten heads that pack unlike quantities into one output, and twins of them that do not: what INT8 makes of each.

    python tests/benchmarks/heads_table.py          # a line a head: what is lost by numpy, what is said, the fix

The truth is numpy's: a part is lost where INT8 tells nothing of it that a constant would not tell.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import precision_debug
from precision_debug.report.lead import lead_sentences

CELLS = 64
LOST, OWN = 0.9, 0.05


@dataclass(frozen=True, kw_only=True)
class Part:
    """width: channels. size: what it is multiplied by. kind: the operator behind the product. shift: added before."""

    width: int
    size: float
    kind: str = "Sigmoid"
    shift: float = 0.0


HEADS: dict[str, tuple[Part, ...]] = {
    "YOLOv5 (boxes, objectness, classes)": (
        Part(width=4, size=640), Part(width=1, size=1, shift=-2), Part(width=6, size=1, shift=-2),
    ),
    "YOLOv8 (boxes, classes)": (Part(width=4, size=640), Part(width=8, size=1, shift=-2)),
    "YOLOv10 (corners, score, class number)": (
        Part(width=4, size=640), Part(width=1, size=1, shift=-1), Part(width=1, size=79),
    ),
    "SSD (offsets, logits)": (Part(width=4, size=300, kind="Tanh"), Part(width=5, size=1.0, kind="Tanh")),
    "boxes and classes": (Part(width=4, size=1024), Part(width=3, size=1)),
    "keypoints (x, y, confidence)": (Part(width=2, size=256), Part(width=1, size=1)),
    "mask and score": (Part(width=12, size=30, kind="Tanh"), Part(width=1, size=0.05)),
    "multi-task concat (depth, normals)": (Part(width=1, size=5000), Part(width=3, size=0.5, kind="Tanh")),
    "logits and value": (Part(width=9, size=90, kind="Tanh"), Part(width=1, size=0.2, kind="Tanh")),
    "mel and pitch": (Part(width=20, size=1, kind="Tanh"), Part(width=1, size=1000)),
}  # fmt: skip


def built(path: Path, parts: tuple[Part, ...], *, joined: bool) -> list[dict[str, Any]]:
    """joined: into one output; else each has its own."""
    random = np.random.default_rng(7)
    node, weights, nodes = helper.make_node, {}, []

    def held(name: str, value: Any) -> str:
        weights[name] = np.asarray(value, np.float32)
        return name

    nodes.append(node("MatMul", ["x", held("w", random.normal(size=(32, 32)) / 5)], ["stem"], "stem"))
    nodes.append(node("Relu", ["stem"], ["features"], "features"))
    names = []
    for number, one in enumerate(parts):
        weight = held(f"w{number}", random.normal(size=(32, one.width)) / 3)
        nodes.append(node("MatMul", ["features", weight], [f"m{number}"], f"m{number}"))
        nodes.append(node("Add", [f"m{number}", held(f"b{number}", np.full(one.width, one.shift))], [f"a{number}"],
                          f"a{number}"))  # fmt: skip
        nodes.append(node(one.kind, [f"a{number}"], [f"k{number}"], f"k{number}"))
        nodes.append(node("Mul", [f"k{number}", held(f"s{number}", one.size)], [f"p{number}"], f"p{number}"))
        names.append(f"p{number}")
    outputs = [("y", sum(one.width for one in parts))]
    if joined:
        nodes.append(node("Concat", names, ["y"], "concat", axis=-1))
    else:
        outputs = [(name, one.width) for name, one in zip(names, parts, strict=True)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [1, CELLS, 32])],
        [value(name, TensorProto.FLOAT, [1, CELLS, width]) for name, width in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": random.normal(size=(1, CELLS, 32)).astype(np.float32)} for _ in range(4)]


def lost_by_numpy(model: Path, parts: tuple[Part, ...], feeds: dict[str, Any], kept: Path) -> list[int]:
    """Which parts INT8 tells nothing of."""
    import onnxruntime

    both = []
    for path in (model, kept):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        both.append(np.concatenate([one.reshape(CELLS, -1) for one in session.run(None, feeds)], axis=-1))
    found, begin = [], 0
    for number, part in enumerate(parts):
        base, target = (one[:, begin : begin + part.width].astype(np.float64) for one in both)
        begin += part.width
        error = float(np.sqrt(np.mean((target - base) ** 2)))
        if error >= LOST * base.std() and error >= OWN * float(np.sqrt(np.mean(base**2))):
            found.append(number)
    return found


def lines(folder: Path) -> Iterator[str]:
    for number, (name, parts) in enumerate(HEADS.items()):
        for joined in (True, False):
            model, made = folder / f"h{number}{joined}.onnx", folder / f"h{number}{joined}.int8.onnx"
            feeds = built(model, parts, joined=joined)
            report = precision_debug.compare(
                str(model), run_mode="ort_int8", inputs=feeds, save_model=str(made)
            )
            gone = lost_by_numpy(model, parts, feeds[-1], made)
            told = [
                (one.axis, one.first, one.last)
                for row in report.outputs if row.comparison is not None for one in row.comparison.lost
            ]
            kept = report.to_keep
            fix = "" if kept is None or kept.tried is None else f"{kept.option} ({kept.tried.state})"
            head = name if joined else f"{name}, apart"
            yield f"{head} | {gone} | {told} | {report.verdict} | {lead_sentences(report)[0].en} | {fix}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as room:
        for line in lines(Path(room)):
            print(line)
            sys.stdout.flush()
