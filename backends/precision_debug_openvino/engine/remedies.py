"""What mends an error of OpenVINO's as a whole: hints of its own, and weights as they were before an IR was saved.

Each is tried before it is offered, see ``protocols.Remedies``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.protocols import Place, Remedy
from precision_debug.records import Culprit, ModelFiles, SessionSpec

from ..model import read_model, read_plain
from ..modes import recipe
from ..reasons import say
from ..settings import setting
from .uncompressed import holds_halves, restore

__all__ = ["IrConfigurations", "iterate_remedies"]

_HINTS = (
    ("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"), ("INFERENCE_PRECISION_HINT", "f32"), ("EXECUTION_MODE_HINT", "ACCURACY"),
)  # fmt: skip
"""What changes least first: activations of packed weights that are quantised as they come; the precision that OpenVINO
takes by itself where the CPU has a faster one; both. The last two leave nothing in the low precision."""

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


def _is_rounded(spec: SessionSpec) -> bool:
    """Return whether a file is an IR with weights that ``save_model`` rounded."""
    return spec.model.model_file.lower().endswith(".xml") and holds_halves(read_model(spec))
