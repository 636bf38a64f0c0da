"""An ONNX test data set: a folder with input_0.pb, input_1.pb, … in the order of the model's inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..records import InputMeta
from ..safety.untrusted import refuse_special
from .dtypes import as_dtype

__all__ = ["is_data_set", "load_data_set"]


def is_data_set(folder: Path) -> bool:
    """Return whether the folder holds input_N.pb files."""
    return bool(_number_files(folder))


def load_data_set(folder: Path, inputs: Sequence[InputMeta]) -> dict[str, Any]:
    """Load a test data set of ONNX (a folder of .pb files), as input name to value.

    The format pairs files and inputs by number; a name inside a file wins where it is one of the model's. Needs the
    onnx package. Raises InputError.
    """
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        raise InputError(".pb files need the onnx package", where=str(folder), hint="pip install onnx") from error
    names = [meta.name for meta in inputs]
    feeds: dict[str, Any] = {}
    for number, file in _number_files(folder).items():
        if number >= len(inputs):
            raise InputError(f"the model has {len(inputs)} inputs, there is no number {number}", where=str(file))
        meta = inputs[number]
        refuse_special(file, InputError)
        try:
            data = file.read_bytes()
            if as_dtype(meta.dtype) is not None:
                tensor = onnx.TensorProto.FromString(data)
                name, value = tensor.name, numpy_helper.to_array(tensor)
            elif "optional" in meta.dtype.lower():
                optional = onnx.OptionalProto.FromString(data)
                name, value = optional.name, numpy_helper.to_optional(optional)
            else:
                sequence = onnx.SequenceProto.FromString(data)
                name, value = sequence.name, numpy_helper.to_list(sequence)
        except Exception as error:  # protobuf and onnx raise many kinds on a damaged file
            what = f"cannot be read as {meta.dtype}: {type(error).__name__}: {error}"
            raise InputError(what, where=str(file)) from error
        feeds[name if name in names else meta.name] = value
    return feeds


def _number_files(folder: Path) -> dict[int, Path]:
    found = {int(m[1]): file for file in folder.iterdir() if (m := re.fullmatch(r"input_(\d+)\.pb", file.name))}
    return dict(sorted(found.items()))
