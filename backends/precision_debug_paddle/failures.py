"""Turns what Paddle raises into one line of ours. What it aborts on is foreseen in ``make`` and ``engine.tensorrt``."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from precision_debug.errors import (
    BackendError,
    BackendUnavailable,
    InputError,
    ModelError,
    PrecisionDebugError,
    shorten,
    translate_errors,
)

from .engine.framework import custom_operators

__all__ = ["our_errors"]

_OPERATOR = re.compile(r"\[operator < (\S+) > error\]")
_ATTRIBUTE = re.compile(r"ConvertPirAttribute2RuntimeAttribute not support \[([^]]+)\]")
_NO_RANGE = re.compile(r"Cannot get (?:the )?(\S+)(?:'s)? min/max/opt shape")
_WEIGHTS = re.compile(
    r"load_combine|loading model parameters|Cannot read tensor desc|Deserialize to tensor failed|load partial data"
)
_NO_KERNEL = re.compile(r"op \[[^]]*\] kernel output args \(0\) defs should equal op outputs")
_UNREGISTERED = re.compile(r"(?i)\boperator [(<\[]? ?([a-z_]\w*) ?[)>\]]? (?:is|was|has) not (?:been )?registered")
_NO_LOD = re.compile(r"not contain LoD|LoD (?:of \S+ )?(?:is|must not be|should not be) (?:empty|null)", re.IGNORECASE)
_FRAME = re.compile(r"\[Hint: .*?\](?= *(?:\(at|$))|\(at \S+?:\d+\)", re.DOTALL)


def our_errors(where: str, *, mode: str = "", params: str = "") -> AbstractContextManager[None]:
    """where: the model's file. mode: the run mode, for what to do next. params: the file of its weights."""
    return translate_errors(
        where, lambda error: _translate(str(error) or type(error).__name__, where, mode, params)
    )


def _translate(text: str, where: str, mode: str, params: str) -> PrecisionDebugError:
    if params and _WEIGHTS.search(text):
        what = f"is damaged, or holds the weights of another model than {where}: {_first_sentence(text)}"
        return ModelError(what, where=params, hint="name the right one with --params_file, or copy it again")
    found = _OPERATOR.search(text)
    operator = found[1] if found else ""
    if "bfloat16" in text and mode == "onednn_bf16":
        return BackendUnavailable(
            f"oneDNN in bfloat16 cannot run operator {operator or '(not named)'} of this model: it got bfloat16 where "
            "it wants float32 (a fault of Paddle's)",
            where=where,
            hint="name the operators that may run in bfloat16 with --option bfloat16_ops, or export the model with"
            " Paddle 3 (.json)",
        )
    if attribute := _ATTRIBUTE.search(text):
        return BackendUnavailable(
            f"oneDNN in this Paddle cannot run an operator of a PIR program that has an attribute of the type"
            f" {attribute[1]}, as resizes (bilinear_interp, nearest_interp) have (a fault of Paddle's)",
            where=where, hint="compare cpu_opt, or export a legacy program (.pdmodel) with Paddle 2",
        )  # fmt: skip
    named = _UNREGISTERED.search(text)
    if named or _NO_KERNEL.search(text):
        custom = custom_operators(where) or ([named[1]] if named else [])
        return ModelError(
            f"it has operators that this Paddle does not know: {', '.join(custom) or 'Paddle does not say which'}",
            where=where,
            hint="custom ones: name their library, --option \"custom_ops_library=['FILE.so']\"; else export the model "
            "with the Paddle that is installed here",
        )  # fmt: skip
    if _NO_LOD.search(text):
        return InputError(
            f"an input needs the offsets of its sequences (LoD): {_first_sentence(text)}", where=where,
            hint="give them beside it in --inputs, as NAME.lod: [0, 2, 5] are rows 0 to 1 and 2 to 4",
        )  # fmt: skip
    unknown = _NO_RANGE.search(text)
    if unknown:
        return BackendError(
            f"TensorRT takes the graph in parts, and the shape range of {unknown[1]} between them is not known",
            where=where,
            hint="--option collect_shape_range=True finds the range of every tensor (on the CPU)",
        )
    if "not compiled with" in text.lower() or "compile with tensorrt" in text.lower():
        return BackendUnavailable(
            f"this Paddle was built without what mode {mode} needs: {_first_sentence(text)}",
            where=where,
            hint="install a paddlepaddle-gpu wheel with TensorRT, or use a CPU mode",
        )
    if "Failed to parse program_desc" in text:
        return ModelError(
            "Paddle takes only a legacy program (.pdmodel) there, and this is PIR", where=where,
            hint="use gpu_fp16 or gpu_bf16, which convert in the predictor",
        )  # fmt: skip
    if re.search(r"out of memory|ResourceExhausted", text, re.IGNORECASE):
        return BackendError(
            f"out of memory: {_first_sentence(text)}", where=where, hint="use a smaller batch or mark fewer tensors"
        )
    if re.search(r"version.*(newer|greater|not supported)|pir_version|Unknown op|not registered", text, re.IGNORECASE):
        return ModelError(
            _first_sentence(text), where=where, hint="export the model with the Paddle that is installed here"
        )
    at = f" (operator {operator})" if operator and operator not in _first_sentence(text) else ""
    return BackendError(f"{_first_sentence(text)}{at}", where=where, hint="--verbose shows all that Paddle printed")


def _first_sentence(text: str) -> str:
    """Return the sentence that says what went wrong, without Paddle's C++ trace."""
    summary = re.search(r"\b(?:\w+Error|ExternalError|\w+): \((\w+)\) (.+?)(?:\n|\[Hint|\(at )", text, re.DOTALL)
    plain = re.search(r"^\((\w+)\) (.+)", text, re.DOTALL)
    line = summary[2] if summary else plain[2] if plain else text
    line = " ".join(_FRAME.sub("", line.partition("  [operator")[0]).split()).rstrip(". ")
    return shorten(line)
