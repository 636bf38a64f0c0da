"""A model in INT8: with the quantisation that it has already, else with NNCF's, calibrated on the inputs."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, BackendUnavailable
from precision_debug.reasons import Reason
from precision_debug.settings import passed

from ..failures import plain, reading
from ..reasons import say
from ..settings import setting
from .requantise import without_quantisers

__all__ = ["is_quantised", "quantised"]

_QUANTISERS = frozenset({"FakeQuantize", "FakeConvert"})


def is_quantised(model: Any) -> bool:
    """Whether a model brings its own quantisation; OpenVINO reads QuantizeLinear as FakeQuantize too."""
    return any(op.get_type_name() in _QUANTISERS for op in model.get_ops())


def quantised(
    model: Any, feeds: Sequence[Mapping[str, Any]], options: Mapping[str, Any], ignored: Sequence[str], path: str,
    leave: Path | None = None,
) -> tuple[Any, Reason]:  # fmt: skip
    """The model that is to run, and what to say of how it was quantised.

    feeds: contiguous arrays by input name. ignored: operators that stay as they are. leave: a folder that may be
    "calibrated" for others (see ``settings.passed``): a model with nothing ignored is left there. Raises
    BackendUnavailable where NNCF is needed and not there, and BackendError where it fails.
    """
    if is_quantised(model):
        return model, say("own_quantisation")
    if folder := str(passed(options, "calibrated")):
        return _from_one(model, feeds, options, ignored, path, Path(folder))
    if leave is None or ignored:
        return _by_nncf(model, feeds, options, ignored, path)
    file = _file_of(model, leave)
    whole, note = _by_nncf(model, feeds, options, (), path)
    _left(whole, file)
    return whole, note


def _file_of(model: Any, folder: Path) -> Path:
    return folder / ("any.xml" if model.is_dynamic() else "fixed.xml")


def _left(whole: Any, file: Path) -> None:
    import openvino

    file.parent.mkdir(exist_ok=True)
    with reading(str(file)):
        openvino.save_model(whole, file, compress_to_fp16=False)


def _from_one(
    model: Any, feeds: Sequence[Mapping[str, Any]], options: Mapping[str, Any], ignored: Sequence[str], path: str,
    folder: Path,
) -> tuple[Any, Reason]:  # fmt: skip
    """As ``quantised``, from the one model that is calibrated and left in the folder, with its quantisers removed."""
    import openvino

    file, note = _file_of(model, folder), say("by_nncf", version=version("nncf"), count=len(feeds))
    if not file.exists():
        whole, note = _by_nncf(model.clone(), feeds, options, (), path)
        _left(whole, file)
    with reading(str(file)):
        return without_quantisers(openvino.Core().read_model(file), model, ignored), note


def _by_nncf(
    model: Any, feeds: Sequence[Mapping[str, Any]], options: Mapping[str, Any], ignored: Sequence[str], path: str
) -> tuple[Any, Reason]:
    if importlib.util.find_spec("nncf") is None:
        hint = "pip install nncf, or give a model that is quantised already (QDQ, FakeQuantize)"
        raise BackendUnavailable("the model is not quantised, and NNCF is not installed", where=path, hint=hint)
    logging.getLogger("nncf").setLevel(logging.ERROR)
    try:
        import nncf

        presets = {"performance": nncf.QuantizationPreset.PERFORMANCE, "mixed": nncf.QuantizationPreset.MIXED}
        preset = presets.get(setting(options, "preset"))
        scope = nncf.IgnoredScope(names=list(ignored)) if ignored else None
        data = nncf.Dataset([{name: np.asarray(value) for name, value in one.items()} for one in feeds])
        quiet = np.errstate(over="ignore", invalid="ignore")  # a mask's range is beyond its float32
        with contextlib.redirect_stdout(io.StringIO()), quiet:  # its progress bars
            found = nncf.quantize(model, data, preset=preset, ignored_scope=scope, subset_size=max(1, len(feeds)))
    except Exception as error:
        raise BackendError(f"NNCF could not quantise it ({plain(error)})", where=path) from error
    return found, say("by_nncf", version=nncf.__version__, count=len(feeds))
