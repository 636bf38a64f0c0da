"""What Polygraphy's users type, and the command that does it here: docs/from_polygraphy.md, for one command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from ..reasons import Reason, say

__all__ = ["OPTIONS", "VERBS", "answer_polygraphy_words", "translate_command"]

VERBS = ("run", "convert", "debug", "surgeon", "template", "plugin", "polygraphy")
"""Polygraphy's verbs that are none of ours. Of ours, ``check lint`` is a word of Polygraphy's too."""

_RUNNERS = ("--trt", "--onnxrt", "--onnx_runtime", "--tf", "--pluginref")
_PRECISIONS = {"--fp16": "fp16", "--int8": "int8", "--bf16": "bf16", "--fp8": "fp8", "--tf32": "tf32", "--best": "best"}

OPTIONS = frozenset((*_RUNNERS, *_PRECISIONS, "--load_inputs"))
"""Options that a command of Polygraphy is known by."""

_SAME = {
    "--load_inputs": "--inputs", "--load_input_data": "--inputs", "--save_inputs": "--save_inputs",
    "--load_outputs": "--load_outputs", "--save_outputs": "--save_outputs", "--seed": "--seed",
    "--input_shapes": "--input_shapes", "--inputs": "--input_shapes", "--atol": "--atol", "--abs": "--atol",
    "--rtol": "--rtol", "--rel": "--rtol", "--check_error_stat": "--check_error_stat", "--fail_fast": "--fail_fast",
    "--validate": "--validate", "--gen_script": "--gen_script", "--gen": "--gen_script",
    "--compare_func_script": "--compare", "--save_engine": "--save_engine", "--layer_precisions": "--layer_precisions",
    "--precision_constraints": "--precision_constraints", "--save_tactics": "--save_tactics",
    "--load_tactics": "--load_tactics", "--verbose": "--verbose", "--show": "--show", "--output": "--output",
}  # fmt: skip
"""An option's name here. --inputs was --input-shapes in old releases."""

_UNSAID = frozenset({"--check", "--mode", "--precision", "--until", "--model_type", "--postprocess",
                     "--val_range", "--data_loader_script", "--onnx_outputs", "--trt_outputs", "--show_heatmaps",
                     "--show_error_metrics_plot", "--calibration_cache", "--iterations"})  # fmt: skip
"""Options whose meaning is in another one of the answer, or that change nothing here."""


@dataclass
class _Typed:
    """A command of Polygraphy's, taken apart. verb: "run", "debug precision"."""

    verb: str
    model: str
    options: dict[str, list[str]] = field(default_factory=dict)
    runners: list[str] = field(default_factory=list)

    @property
    def precision(self) -> str:
        """Of TensorRT's mode: the narrowest one that is allowed."""
        found = [name for option, name in _PRECISIONS.items() if option in self.options]
        found += self.options.get("--precision", [])
        return "best" if {"fp16", "int8"} <= {*found} else next(iter(found), "fp32")

    def one(self, name: str) -> str:
        """Return the first value of an option."""
        return next(iter(self.options.get(name, ())), "")


def answer_polygraphy_words(words: Sequence[str]) -> Reason | None:
    """Return a line with the command that does what ``words`` ask Polygraphy for; None where they are not its own."""
    typed = [word for word in words if word != "polygraphy"]
    verb = next(iter(typed), "")
    ours = any(_strip_dashes(word) == "--run_mode" for word in typed)  # with a word or two of Polygraphy's
    known = any(_strip_dashes(word) in OPTIONS for word in typed) and not ours
    if not known and verb not in VERBS and typed[:2] != ["check", "lint"]:
        return None
    command, odd = translate_command(typed)
    if not command:
        return say("polygraphy_elsewhere", verb=" ".join(typed[:2]))
    return say("polygraphy_without", command=command, odd=odd) if odd else say("polygraphy_here", command=command)


def translate_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Translate a Polygraphy command into one of this tool.

    words: the command without the word "polygraphy". Returns our command, and the options that have no counterpart
    here; "" for what this tool does not do."""
    typed = _read(words)
    ours = _translate_verb(typed)
    if ours is None:
        return "", []
    parts = ["precision_debug", *ours]
    odd = []
    for name, values in typed.options.items():
        if name == "--val_range":
            parts += ["--val_range", *(value.strip("[]") for value in values)]
        elif name == "--data_loader_script":
            parts += ["--inputs", *(value if ":" in value else f"{value}:load_data" for value in values)]
        elif name in _SAME and typed.verb not in ("check lint",):
            parts += [_SAME[name], *values]
        elif name not in _PRECISIONS and name not in _UNSAID:
            odd.append(name)
    return shlex.join(parts).replace("'M'", "M"), odd


def _read(words: Iterable[str]) -> _Typed:
    places: list[str] = []
    typed = _Typed(verb="", model="")
    option = ""
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            option = _strip_dashes(name)
            if option in _RUNNERS:
                typed.runners.append(option)
            else:
                typed.options.setdefault(option, [])
            if equals:
                typed.options.setdefault(option, []).append(value)
        elif word.startswith("-") and len(word) == 2:
            option = {"-o": "--output", "-v": "--verbose"}.get(word, word)
            typed.options.setdefault(option, [])
        elif option and option not in _RUNNERS and option not in _PRECISIONS and option not in _BARE:
            typed.options[option].append(word)
        else:
            places.append(word)
    verbs = 2 if places[:1] in (["debug"], ["surgeon"], ["inspect"], ["data"], ["check"], ["plugin"]) else 1
    if places[:1] and places[0] not in (*VERBS, "inspect", "data", "check"):
        verbs = 0
    typed.verb = " ".join(places[:verbs]) or "run"
    typed.model = next(iter(places[verbs:]), "") or typed.one("--model_file")
    typed.options.pop("--model_file", None)
    return typed


_BARE = frozenset({"--validate", "--fail_fast", "--show_heatmaps", "--show_error_metrics_plot", "--verbose"})
"""Options that take no value, so that a word behind them is the model."""


def _strip_dashes(word: str) -> str:
    name = word.partition("=")[0]
    return "--" + name[2:].replace("-", "_") if name.startswith("--") else name


def _translate_verb(typed: _Typed) -> list[str] | None:
    """Our verb, the model and the run modes; None where there is none."""
    model = ["--model_file", typed.model or "M"]
    mode = ["--run_mode", f"trt_{typed.precision}"]
    if typed.verb == "run":
        return [*_translate_run(typed)]
    if typed.verb == "convert":
        saved = typed.options.pop("--output", [])
        return [*model, *mode, "--save_engine", *(saved or [str(PurePath(typed.model or "M").with_suffix(".engine"))])]
    if typed.verb == "debug precision":
        if typed.precision == "fp32":
            mode = ["--run_mode", "trt_fp16"]
        return ["search", *model, *mode]
    if typed.verb == "debug reduce":
        return ["reduce", *model, "--run_mode", f"trt_{'fp16' if typed.precision == 'fp32' else typed.precision}"]
    if typed.verb in ("debug build", "debug repeat"):
        return [*model, *mode, "--repeat", typed.one("--until") or "3"]
    if typed.verb == "check lint":
        return ["check", typed.model or "M"]
    return None


def _translate_run(typed: _Typed) -> list[str]:
    """Return our options for a command ``polygraphy run``: the model, the run mode and the baseline."""
    trt, ort = "--trt" in typed.runners, len([one for one in typed.runners if one.startswith("--onnx")])
    model = ["--model_file", typed.model or "M"]
    if typed.one("--model_type") == "engine" or typed.model.endswith((".engine", ".plan")):
        return [*model, "--run_mode", "trt_engine", "--baseline_model",
                str(PurePath(typed.model or "M").with_suffix(".onnx"))]  # fmt: skip
    if trt or any(name in typed.options for name in _PRECISIONS):
        return [*model, "--run_mode", f"trt_{typed.precision}", *(("--baseline", "ort_fp32") if ort else ())]
    if "--validate" in typed.options:
        return [*model, "--run_mode", "ort_fp32", "--baseline", "none"]
    return [*model, "--run_mode", "ort_opt"]
