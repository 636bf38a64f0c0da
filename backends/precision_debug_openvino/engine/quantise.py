"""A model in INT8: with the quantisation that it has already, else with NNCF's, calibrated on the inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import io
import logging
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, BackendUnavailable
from precision_debug.reasons import Reason
from precision_debug.settings import get_passed

from ..failures import reading, to_one_line
from ..reasons import say
from ..settings import setting
from .graph import list_bodies
from .requantise import without_quantisers

__all__ = ["format_overflow_fix", "import_nncf", "is_quantised", "list_constant_lookups", "quantise_model"]

_QUANTISERS = frozenset({"FakeQuantize", "FakeConvert"})


def is_quantised(model: Any) -> bool:
    """Return whether a model brings its own quantisation; OpenVINO reads QuantizeLinear as FakeQuantize too."""
    return any(op.get_type_name() in _QUANTISERS for op in model.get_ops())


def quantise_model(
    model: Any, feeds: Sequence[Mapping[str, Any]], options: Mapping[str, Any], ignored: Sequence[str], path: str,
    leave: Path | None = None,
) -> tuple[Any, tuple[Reason, ...]]:  # fmt: skip
    """Return the model that is to run, and what to say of how it was quantised.

    feeds: contiguous arrays by input name. ignored: operators that stay as they are. leave: a folder that may be
    "calibrated" for others (see ``settings.get_passed``): a model with nothing ignored is left there. Raises
    BackendUnavailable where NNCF is needed and not there, and BackendError where it fails.
    """
    if is_quantised(model):
        return model, (say("own_quantisation"),)
    if folder := str(get_passed(options, "calibrated")):
        return _from_one(model, feeds, options, ignored, path, Path(folder))
    if leave is None or ignored:
        return _quantise_by_nncf(model, feeds, options, ignored, path)
    file = _find_file(model, leave)
    whole, notes = _quantise_by_nncf(model, feeds, options, (), path)
    _left(whole, file)
    return whole, notes


def _find_file(model: Any, folder: Path) -> Path:
    return folder / ("any.xml" if model.is_dynamic() else "fixed.xml")


def _left(whole: Any, file: Path) -> None:
    import openvino

    file.parent.mkdir(exist_ok=True)
    with reading(str(file)):
        openvino.save_model(whole, file, compress_to_fp16=False)


def _from_one(
    model: Any, feeds: Sequence[Mapping[str, Any]], options: Mapping[str, Any], ignored: Sequence[str], path: str,
    folder: Path,
) -> tuple[Any, tuple[Reason, ...]]:  # fmt: skip
    """As ``quantise_model``, from the one model that is calibrated and left in the folder, with its quantisers
    removed."""
    import openvino

    file = _find_file(model, folder)
    notes: tuple[Reason, ...] = (say("by_nncf", version=version("nncf"), count=len(feeds)),)
    if not file.exists():
        whole, notes = _quantise_by_nncf(model, feeds, options, (), path)
        _left(whole, file)
    with reading(str(file)):
        return without_quantisers(openvino.Core().read_model(file), model, ignored), notes


_TELLS = "openvino_telemetry"


def import_nncf() -> Any:
    """Return NNCF, which tells its makers nothing of our calls: each would start processes and wait for them, seconds
    where there is no network."""
    if "nncf" not in sys.modules:
        known = sys.modules.get(_TELLS)
        sys.modules[_TELLS] = None  # type: ignore[assignment]  # NNCF goes without
        try:
            importlib.import_module("nncf")
        finally:
            del sys.modules[_TELLS]
            if known is not None:
                sys.modules[_TELLS] = known
    import nncf

    return nncf


def _quantise_by_nncf(
    model: Any, feeds: Sequence[Mapping[str, Any]], options: Mapping[str, Any], ignored: Sequence[str], path: str
) -> tuple[Any, tuple[Reason, ...]]:
    if importlib.util.find_spec("nncf") is None:
        hint = "pip install nncf, or give a model that is quantised already (QDQ, FakeQuantize)"
        raise BackendUnavailable("the model is not quantised, and NNCF is not installed", where=path, hint=hint)
    logging.getLogger("nncf").setLevel(logging.ERROR)
    try:
        nncf = import_nncf()
        presets = {"performance": nncf.QuantizationPreset.PERFORMANCE, "mixed": nncf.QuantizationPreset.MIXED}
        preset = presets.get(setting(options, "preset"))
        idle = _find_idle_branches(model, feeds)
        names = [*ignored, *(name for body in idle.values() for name in body)]
        # of a branch's operators some graphs have none, and NNCF would refuse the names there
        scope = nncf.IgnoredScope(names=names, validate=not idle) if names else None
        data = nncf.Dataset([{name: np.asarray(value) for name, value in one.items()} for one in feeds])
        quiet = np.errstate(over="ignore", invalid="ignore")  # a mask's range is beyond its float32
        with contextlib.redirect_stdout(io.StringIO()), quiet:  # its progress bars
            given = {"preset": preset, "ignored_scope": scope, "subset_size": max(1, len(feeds))}
            if fix := setting(options, "overflow_fix"):
                given["advanced_parameters"] = nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix(fix))
            fixed: list[str] = []
            try:
                # a copy: it leaves out what no result needs, whose readers NNCF looks for and does not find
                found, uncorrected = nncf.quantize(model.clone(), data, **given), ""
            except Exception as error:  # its correction of biases knows one number a channel alone
                found, uncorrected = _without_correction(model, data, given), to_one_line(error)
                if found is None and (fixed := list_constant_lookups(model)):
                    given["ignored_scope"] = nncf.IgnoredScope(names=[*names, *fixed], validate=not idle)
                    found, uncorrected = nncf.quantize(model.clone(), data, **given), ""
                if found is None:
                    raise
    except Exception as error:
        what = say("not_by_nncf", error=to_one_line(error), version=version("nncf"))
        raise BackendError(what, where=path, hint=say("quantise_it_yourself")) from error
    notes = [say("by_nncf", version=nncf.__version__, count=len(feeds))]
    if fixed:
        notes.append(say("rows_of_constants", version=nncf.__version__, nodes=", ".join(fixed)))
    if uncorrected:
        notes.append(say("no_bias_correction", error=uncorrected))
    return found, (*notes, *(say("idle_branch", name=name, branch=branch) for name, branch in idle))


def _without_correction(model: Any, data: Any, given: Mapping[str, Any]) -> Any | None:
    """Return the model as NNCF quantises it with biases left as they are; None where it fails at that, too."""
    nncf = import_nncf()
    chosen = given.get("advanced_parameters") or nncf.AdvancedQuantizationParameters()
    plainer = {**given, "advanced_parameters": dataclasses.replace(chosen, disable_bias_correction=True)}
    with contextlib.suppress(Exception):
        return nncf.quantize(model.clone(), data, **plainer)
    return None


def format_overflow_fix(chosen: str) -> str:
    """Return the argument of ``nncf.quantize`` that chooses it."""
    return f"advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix({chosen!r}))"


def list_constant_lookups(model: Any) -> list[str]:
    """Return the lookups of a constant table by constant indices, a window's position biases say: NNCF takes each for
    an embedding, looks for where it is reached from an input, and gives up on the whole model (KeyError)."""
    made: set[str] = set()
    found: list[str] = []
    for op in model.get_ordered_ops():
        read = [op.input_value(place).get_node().get_friendly_name() for place in range(op.get_input_size())]
        if op.get_type_name() == "Constant" or (read and made.issuperset(read)):
            made.add(op.get_friendly_name())
            looks_up = op.get_type_name() == "Gather" and op.get_output_element_type(0).is_real()
            found += [str(op.get_friendly_name())] if looks_up else []
    return found


def _find_idle_branches(model: Any, feeds: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """Return the operators of each branch of the main graph's that none of the feeds enters, by the name of its If and
    "then" or "else": NNCF has nothing to calibrate them with, and gives up on the whole model for that."""
    from openvino import Core, opset13

    forks = [op.get_friendly_name() for op in model.get_ops() if op.get_type_name() == "If"]
    if not forks:
        return {}
    clone = model.clone()
    by_name = {op.get_friendly_name(): op for op in clone.get_ops()}
    first = len(clone.outputs)
    clone.add_results([opset13.result(by_name[name].input_value(0)) for name in forks])
    compiled = Core().compile_model(clone, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    taken: dict[str, set[bool]] = {name: set() for name in forks}
    for one in feeds:
        got = compiled(dict(one))
        for place, name in enumerate(forks, first):
            taken[name].add(bool(np.all(got[place])))
    ops = {op.get_friendly_name(): op for op in model.get_ops()}
    return {
        (str(name), word): _list_inside(list_bodies(ops[name])[number])
        for name in forks for number, (word, when) in enumerate((("then", True), ("else", False)))
        if when not in taken[name]
    }  # fmt: skip


def _list_inside(body: Any) -> list[str]:
    """Return what is computed in a body, and in those inside it."""
    found: list[str] = []
    for op in body.get_ordered_ops():
        if op.get_type_name() not in {"Constant", "Parameter", "Result"}:
            found.append(str(op.get_friendly_name()))
        for inner in list_bodies(op):
            found += _list_inside(inner)
    return found
