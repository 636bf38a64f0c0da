"""Makes the folders beside it again: rknn-toolkit2 2.5.0 (x86-64, CPython 3.11, in an environment of its own), whose
simulator runs for RK3588 without a board. Of accuracy_analysis's snapshot, map_name_to_file.txt and simulator/npy are
kept. In the outlier model one channel of the second block is 200 times as large, and what reads it as much smaller; in
the wrong one a bias of the second block is off by 1.5."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

HERE = Path(__file__).parent
DIGITS = HERE.parents[2] / "examples" / "digits"


def outlier(times: float = 200.0) -> onnx.ModelProto:
    """The digits model, with one channel of its second block so much larger; the function is the same."""
    model = onnx.load(DIGITS / "digits.onnx")
    for one in model.graph.initializer:
        value = numpy_helper.to_array(one).copy()
        if one.name in {"bn2_weight", "bn2_bias"}:
            value[3] *= times
        elif one.name == "conv3_weight":
            value[:, 3] /= times
        else:
            continue
        one.CopyFrom(numpy_helper.from_array(value, one.name))
    return model


def wrong() -> onnx.ModelProto:
    """The digits model, with one bias of its second block off by 1.5."""
    model = onnx.load(DIGITS / "digits.onnx")
    for one in model.graph.initializer:
        if one.name == "bn2_bias":
            value = numpy_helper.to_array(one).copy()
            value[5] += 1.5
            one.CopyFrom(numpy_helper.from_array(value, one.name))
    return model


def main() -> None:
    from rknn.api import RKNN

    work = Path(tempfile.mkdtemp())
    images = np.load(DIGITS / "test_images.npz")["image"][:100]
    for number, image in enumerate(images):
        np.save(work / f"in{number}.npy", image[None])
    (work / "set.txt").write_text("\n".join(str(work / f"in{number}.npy") for number in range(100)))
    onnx.save(outlier(), work / "outlier.onnx")
    onnx.save(wrong(), work / "wrong.onnx")
    for name, path in (
        ("healthy", DIGITS / "digits.onnx"), ("outlier", work / "outlier.onnx"), ("wrong", work / "wrong.onnx")
    ):  # fmt: skip
        rknn = RKNN(verbose=False)
        rknn.config(target_platform="rk3588", quantized_algorithm="normal")
        rknn.load_onnx(str(path), inputs=["image"], input_size_list=[[1, 1, 8, 8]])
        rknn.build(do_quantization=True, dataset=str(work / "set.txt"))
        rknn.accuracy_analysis(inputs=[str(work / "in0.npy")], output_dir=str(work / name))
        rknn.release()
        (HERE / name).mkdir(exist_ok=True)
        shutil.copy(work / name / "map_name_to_file.txt", HERE / name)
        shutil.copytree(work / name / "simulator" / "npy", HERE / name / "simulator" / "npy", dirs_exist_ok=True)


if __name__ == "__main__":
    main()
