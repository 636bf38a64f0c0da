"""What mends an error of OpenVINO's as a whole: hints of its own, and weights as they were before an IR was saved.

Each is tried before it is offered, see ``protocols.Remedies``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import ModelError
from precision_debug.protocols import Place, Remedy
from precision_debug.records import Culprit, ModelFiles, SessionSpec

from ..model import read_model, read_plain
from ..modes import recipe
from ..reasons import say
from ..settings import setting
from .quantise import format_overflow_fix, is_quantised
from .uncompressed import holds_halves, restore

__all__ = ["IrConfigurations", "iterate_remedies"]

_HINTS = (
    ("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"), ("INFERENCE_PRECISION_HINT", "f32"), ("EXECUTION_MODE_HINT", "ACCURACY"),
)  # fmt: skip
"""What changes least first: activations of packed weights that are quantised as they come; the precision that OpenVINO
takes by itself where the CPU has a faster one; both. The last two leave nothing in the low precision."""

_PRODUCTS = frozenset({
    "Conv", "ConvTranspose", "Gemm", "MatMul", "Convolution", "GroupConvolution", "ConvolutionBackpropData",
    "GroupConvolutionBackpropData", "matmul_v2", "conv2d", "depthwise_conv2d",
})  # fmt: skip
"""What adds 8-bit products, as a model's own format calls it."""

_PACKED = frozenset({"i8", "u8", "i4", "u4", "nf4"})

_SAVED = """\
import openvino

model = openvino.convert_model({source!r})
openvino.save_model(model, {made!r}, compress_to_fp16=False)"""


_KEY = "compress_to_fp16"


class IrConfigurations:
    """What an IR was saved with; see ``protocols.Configurations``."""

    words = "OpenVINO"
    weights = None

    def read(self, spec: SessionSpec) -> Mapping[str, Any]:
        """Return whether weights are rounded to FP16; of another format's file they are not, unless it says so."""
        return {_KEY: _is_rounded(spec)}

    def exchange(self, spec: SessionSpec, values: Mapping[Place, Any], folder: Path, base: SessionSpec) -> ModelFiles:
        """Write the same model with the other's numbers in place of those that are theirs but for the rounding."""
        import openvino

        model = read_model(spec)
        if values != {(_KEY,): False} or not restore(model, read_plain(base.model)):
            raise ModelError(say("not_rounded_from", name=base.model.path), where=spec.model.path)
        path = folder / "uncompressed.xml"
        openvino.save_model(model, str(path), compress_to_fp16=False)
        return ModelFiles(model_file=str(path))


def iterate_remedies(spec: SessionSpec, culprits: Sequence[Culprit], base: SessionSpec) -> Iterator[Remedy]:
    """culprits: who is named. base: the baseline, whose file an IR may come from."""
    source = base.model.model_file
    other = source and source != spec.model.model_file and not setting(spec.options, "uncompressed_from")
    if other and any(one.cause == "files_differ" for one in culprits) and _is_rounded(spec):
        lines = _SAVED.format(source=source, made=spec.model.model_file)
        yield Remedy(settings={"uncompressed_from": source}, text=lines, files=True)
    if recipe(spec.mode).quantise and not setting(spec.options, "overflow_fix"):
        types = {kind for one in culprits for kind in one.op_types}
        if (not types or not types.isdisjoint(_PRODUCTS)) and not is_quantised(read_model(spec)) and adds_in_16_bits():
            yield Remedy(
                settings={"overflow_fix": "enable"}, cause="saturating_sums", evidence={"bits": 7},
                text=f"nncf.quantize(…, {format_overflow_fix('enable')})",
            )  # fmt: skip
    if recipe(spec.mode).precision:
        return  # the mode itself says which precision it is
    given = setting(spec.options, "config")
    packed = any(
        op.get_type_name() == "Constant" and op.get_output_element_type(0).get_type_name() in _PACKED
        for op in read_model(spec).get_ops()
    )  # fmt: skip
    for name, value in _HINTS:
        if name in given or (name.startswith("DYNAMIC") and not packed):
            continue
        device = str(setting(spec.options, "device"))
        yield Remedy(
            settings={"config": {**given, name: value}}, wide=not name.startswith("DYNAMIC"),
            text=f"core.compile_model(model, {device!r}, { {**given, name: value}!r})",
        )  # fmt: skip


@functools.cache
def adds_in_16_bits() -> bool:
    """Return whether this processor's kernel adds two products of 8-bit numbers in 16 bits, where they saturate: 64
    terms of 255 x 127 are run. x86-64 without VNNI does (its vpmaddubsw)."""
    import openvino
    from openvino import opset13

    terms, ends = 64, [np.float32(end) for end in (0, 255, 0, 255)]
    read = opset13.parameter([1, terms], np.float32)
    weights = opset13.convert(opset13.constant(np.full((terms, 16), 127, np.int8)), np.float32)
    scaled = opset13.multiply(weights, opset13.constant(np.ones((1, 16), np.float32)))
    product = opset13.matmul(opset13.fake_quantize(read, *ends, 256), scaled, False, False)
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = openvino.Core().compile_model(openvino.Model([product], [read]), "CPU", config)
    return bool((compiled([np.full((1, terms), 255, np.float32)])[0] != terms * 255 * 127).any())


def _is_rounded(spec: SessionSpec) -> bool:
    """Return whether a file is an IR with weights that ``save_model`` rounded."""
    return spec.model.model_file.lower().endswith(".xml") and holds_halves(read_model(spec))
