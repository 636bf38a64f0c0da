"""Build camera.onnx: the trained network of examples/digits behind the normalisation that a 12-bit camera needs.

Pixels are counts from 0 to 4095. The first operators bring every image to the same brightness, x / sqrt(mean(x * x)),
written out as exporters write it. In FP16 the squares overflow, so that every image becomes 0.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

DIGITS = Path(__file__).resolve().parents[1] / "digits"
COUNTS = 4095


def images() -> np.ndarray:
    """The 360 test images of examples/digits as the camera counts them, float32 [360, 1, 8, 8]."""
    with np.load(DIGITS / "test_images.npz") as stored:
        return np.round(stored["image"] * COUNTS).astype(np.float32)


def build() -> onnx.ModelProto:
    """Input counts [N, 1, 8, 8], output probabilities [N, 10]."""
    proto = onnx.load(DIGITS / "digits.onnx")
    brightness = float(np.sqrt(np.mean(np.square(images() / COUNTS))))
    front = [
        helper.make_node("Mul", ["counts", "counts"], ["squares"], name="squares"),
        helper.make_node("ReduceMean", ["squares"], ["power"], name="power", axes=[1, 2, 3], keepdims=1),
        helper.make_node("Sqrt", ["power"], ["level"], name="level"),
        helper.make_node("Div", ["counts", "level"], ["levelled"], name="levelled"),
        helper.make_node("Mul", ["levelled", "brightness"], ["image"], name="brightness"),
    ]
    nodes = [*front, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.graph.input[0].name = "counts"
    proto.graph.initializer.append(numpy_helper.from_array(np.array(brightness, np.float32), "brightness"))
    onnx.checker.check_model(proto, full_check=True)
    return proto


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("camera.onnx"))
    args = parser.parse_args()
    folder = args.output.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(build(), args.output)
    counts = images()
    for number, part in enumerate(np.split(counts, 4)):  # the search sees two of them, the others check its answer
        np.savez_compressed(folder / f"images_{number}.npz", counts=part)
    np.save(folder.with_name(f"{folder.name}_labels.npy"), np.load(DIGITS / "test_labels.npy")[: len(counts) // 4])
    print(args.output)


if __name__ == "__main__":
    main()
