"""Paddle-TRT on a legacy program: marks, the engine inspector, dynamic shapes and calibration.

Every build gets a folder of its own with a copy of the program, so that an inspector file, an engine or a calibration
table from an earlier run is never taken for this one's. A graph that TensorRT takes in parts needs the shape range of
the tensors between them too, so the range is collected on the CPU unless told otherwise. Seen with paddlepaddle-gpu
2.6.2 and TensorRT 8.5.3.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, ModelError, PrecisionDebugError, UsageError
from precision_debug.inspector import EngineLayer, read_inspector, split_fused_outputs, strip_subgraph_suffix
from precision_debug.protocols import Feeds, tell
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import SessionSpec

from ..failures import our_errors
from ..make import make_config
from ..model import Model
from ..modes import Recipe
from ..reasons import say
from ..settings import setting
from . import build_log, tf32
from .framework import import_inference
from .inspector_files import InspectorFiles
from .predictor import Runner

__all__ = ["Builder", "list_fused_names", "shape_range"]


# Calibration tables: ``trt_calib_<hash>`` in ``_opt_cache`` beside the program, one a subgraph and set of marks.
#
# Paddle 2.6 writes them there, but looks for them in the cache folder where one is set; so none is set while it
# calibrates, and tables are copied from the user's folder and back.

class Tables:
    """The tables of one build. folder: the program's. cache: the user's folder, "" where there is none."""

    def __init__(self, folder: Path, cache: str) -> None:
        self._inside, self._cache = folder / "_opt_cache", cache
        self._existing: tuple[str, ...] = ()
        found = sorted(Path(cache).glob("trt_calib_*")) if cache else []
        if found:
            self._inside.mkdir(exist_ok=True)
            self._existing = tuple(path.name for path in found)
            for path in found:
                shutil.copyfile(path, self._inside / path.name)

    def note(self, samples: int, build: int) -> Reason:
        """After the predictor is gone: keep what it wrote, and say where the int8 scales come from."""
        new = [path for path in sorted(self._inside.glob("trt_calib_*")) if path.name not in self._existing]
        for path in new if self._cache else ():
            shutil.copyfile(path, Path(self._cache, path.name))
        if new:
            return say("calibrated", count=samples, build=build)
        if self._existing:
            return say("scales_cached", build=build)
        return say("no_table", build=build)


_QUANTISERS = re.compile(r"fake_quantize|fake_dequantize|quantize_linear")


def shape_range(options: Mapping[str, Any], *, calibrates: bool, feeds: Sequence[Feeds]) -> str:
    """Return how the engine's shapes are found: "static", "given", "collected", "file", or "feeds": the inputs' own
    shapes.

    Raises UsageError on settings that contradict each other, and on those on which Paddle aborts.
    """
    ranges = _given_shapes(options)
    dynamic, collects = setting(options, "use_dynamic_shape"), setting(options, "collect_shape_range")
    wants = bool(ranges or collects or setting(options, "shape_range_file"))
    if dynamic is False and wants:
        raise UsageError("--use_dynamic_shape 0 contradicts the given shape range", hint="leave one of them out")
    if ranges and len(ranges) < 3:
        raise UsageError(
            f"--{next(iter(ranges))} alone is not a range",
            hint="give --min_shapes, --opt_shapes and --max_shapes for every input",
        )
    if calibrates and (dynamic or wants):
        raise UsageError(
            "Paddle ends the process when it calibrates int8 with a dynamic shape",
            where="trt_int8",
            hint="leave out --use_dynamic_shape and the shape range, or quantise the model before (PaddleSlim)",
        )
    if ranges:
        names = set(feeds[0]) if feeds else set()
        for key, shapes in ranges.items():
            missing = names - set(shapes)
            if missing:
                raise UsageError(f"--{key} says nothing of input {min(missing)}", hint="give all three for every input")
        split = bool(setting(options, "disable_tensorrt_ops"))
        return "collected" if collects or (split and collects is None) else "given"
    if setting(options, "shape_range_file"):
        return "file"
    if calibrates or dynamic is False:
        return "static"
    return "collected" if collects or collects is None else "feeds"


def _given_shapes(options: Mapping[str, Any]) -> dict[str, Mapping[str, tuple[int, ...]]]:
    """Return those of min_shapes, opt_shapes and max_shapes that were given, in this order."""
    found = {key: setting(options, key) for key in ("min_shapes", "opt_shapes", "max_shapes")}
    return {key: shapes for key, shapes in found.items() if shapes}


def list_fused_names(layers: Sequence[EngineLayer]) -> tuple[str, ...]:
    """Paddle's names of the tensors that the engine still produces, in execution order."""
    kept, _ = split_fused_outputs(layers)
    return tuple(dict.fromkeys(strip_subgraph_suffix(name)[0] for name in kept))


class Builder:
    """All builds of one command.

    seconds: what each took, with how many marks, in their order. outputs: of the last build, on the first feeds.
    scalars: tensors without a dimension, where ranges were collected: Paddle-TRT gives each of them one of size 1.
    """

    def __init__(self, spec: SessionSpec, model: Model, recipe: Recipe, feeds: Sequence[Feeds], folder: Path) -> None:
        self.spec, self.model, self.recipe, self.feeds, self.folder = spec, model, recipe, feeds, folder
        self.options = spec.options
        self.builds = 0
        self.seconds: list[tuple[int, float]] = []
        self.outputs: Mapping[str, Any] = {}
        self.scalars: set[str] = set()
        self.notes: list[Reason] = [tf32.tensorrt_note(recipe, self.options)]
        self._written: dict[Path, InspectorFiles] = {}
        quantised = any(_QUANTISERS.search(value.op_type) for value in model.program.values)
        int8 = recipe.precision == "int8"
        calibration = setting(self.options, "calibration")
        self.calibrates = int8 and (not quantised if calibration is None else calibration)
        self.shapes = shape_range(self.options, calibrates=self.calibrates, feeds=feeds)
        self.ranges = self._ranges()

    def markable(self, plain: Sequence[EngineLayer]) -> tuple[str, ...]:
        """Return what may be marked: with fused_only what the unmarked engine still computes, else every tensor.

        The program's outputs are shown by any engine: a mark of theirs would only ask for another build.
        """
        values = self.model.program.values
        known = [value.name for value in values if not (value.hidden or value.variable or value.output)]
        if not setting(self.options, "fused_only"):
            return tuple(known)
        if not plain:
            raise BackendError(
                "TensorRT's inspector wrote no file, so the fused layers are not known", where=self.model.path,
                hint="leave out --fused_only, or check that TensorRT took a subgraph (--verbose)",
            )  # fmt: skip
        fused = set(list_fused_names(plain))
        return tuple(name for name in known if name in fused)

    def built(self, marks: Sequence[str]) -> tuple[Path, Runner]:
        """Return a predictor that is ready, and the folder that its inspector file lies in."""
        try:
            return self._built(marks)
        except BackendError as error:
            if self.shapes != "collected" or setting(self.options, "collect_shape_range"):
                raise
            self._leave_collected(say("not_built_for_ranges", detail=error.what))
        return self._built(marks)

    def _built(self, marks: Sequence[str]) -> tuple[Path, Runner]:
        self.builds += 1
        count = len(self.model.program.values)
        if marks:
            tell(say("building_marked", build=self.builds, marks=len(marks)))
        else:
            tell(say("building_unmarked", build=self.builds, count=count))
        begun = time.monotonic()
        with build_log.make_audible():
            folder, runner = self._made(marks)
        self.seconds.append((len(marks), time.monotonic() - begun))
        return folder, runner

    def _made(self, marks: Sequence[str]) -> tuple[Path, Runner]:
        folder = self.folder / f"build_{self.builds}"
        folder.mkdir()
        program = folder / self.model.file.name
        shutil.copyfile(self.model.file, program)
        keep = setting(self.options, "cache_dir")
        if keep:
            Path(keep).mkdir(parents=True, exist_ok=True)
        self._written[folder] = InspectorFiles(folder, keep, (self.model.file.parent, Path.cwd()))
        if not self.calibrates:
            runner = self._runner(program, marks, keep)
        else:
            tables = Tables(folder, keep)
            runner = self._runner(program, marks, "")
            for feeds in self.feeds:
                runner.run(feeds)
            runner.close()  # the table is written when the predictor goes
            del runner
            gc.collect()
            self.notes.append(tables.note(len(self.feeds), self.builds))
            runner = self._runner(program, marks, "")
        self.outputs = runner.run(self.feeds[0])  # a dynamic engine is built by the first run
        return folder, runner

    def took(self) -> Reason:
        """Return the builds so far, for a report; "" where there is none yet."""
        if not self.seconds:
            return NOTHING
        parts = [
            say("built_marked", count=marks, seconds=seconds) if marks else say("built_unmarked", seconds=seconds)
            for marks, seconds in self.seconds
        ]
        return say("built", count=len(parts), seconds=sum(seconds for _, seconds in self.seconds), parts=parts)

    def _runner(self, program: Path, marks: Sequence[str], cache: str) -> Runner:
        options, inference = self.options, import_inference()
        with our_errors(self.model.path, mode=self.spec.mode, params=str(self.model.params)):
            # a quiet predictor would switch the log off that ``make_audible`` has switched on
            config = make_config(self.recipe, program, self.model.params, options, device="gpu", quiet=False)
            if cache:  # with a separator: Paddle only appends names to it
                config.set_optim_cache_dir(os.path.join(cache, ""))
            precision = {
                "float32": inference.PrecisionType.Float32, "float16": inference.PrecisionType.Half,
                "bfloat16": inference.PrecisionType.Bfloat16, "int8": inference.PrecisionType.Int8,
            }[self.recipe.precision]  # fmt: skip
            config.enable_tensorrt_engine(
                workspace_size=setting(options, "workspace"),
                max_batch_size=setting(options, "max_batch_size") or self._batch(),
                min_subgraph_size=setting(options, "min_subgraph_size"),
                precision_mode=precision,
                use_static=setting(options, "use_static"),
                use_calib_mode=self.calibrates,
            )
            if self.shapes in {"collected", "file"}:
                config.enable_tuned_tensorrt_dynamic_shape(str(self.ranges), True)
            elif self.shapes != "static":
                config.set_trt_dynamic_shape_info(*self.ranges)
            disabled = setting(options, "disable_tensorrt_ops")
            if disabled:
                config.exp_disable_tensorrt_ops(list(disabled))
            kept = setting(options, "disable_tensorrt_half_ops")
            if kept:
                self._keep(config, kept)
            half = setting(options, "fp16_subgraphs")
            if half:
                self._specify(config, half)
            config.enable_tensorrt_inspector(True)
            if marks:
                config.mark_trt_engine_outputs(list(marks))
        return Runner(config, where=self.model.path, mode=self.spec.mode)

    def _keep(self, config: Any, names: Sequence[str]) -> None:
        internal: Any = getattr(import_inference(), "InternalUtils", None)
        if not hasattr(internal, "disable_tensorrt_half_ops"):
            raise UsageError(
                "this Paddle cannot keep operators of an engine", where="--option disable_tensorrt_half_ops"
            )
        internal.disable_tensorrt_half_ops(config, set(names))

    def _specify(self, config: Any, names: Sequence[str]) -> None:
        if not hasattr(config, "exp_specify_tensorrt_subgraph_precision"):
            raise UsageError("this Paddle cannot set a precision by subgraph", where="--option fp16_subgraphs")
        config.exp_specify_tensorrt_subgraph_precision(list(names), [], [])

    def _batch(self) -> int:
        return max((value.shape[0] for value in self.feeds[0].values() if getattr(value, "shape", ())), default=1)

    def _ranges(self) -> Any:
        """(min, max, opt) by input, or the path of a shape range file."""
        options = self.options
        if self.shapes == "given":
            typed = _given_shapes(options)
            by_key = [typed[key] for key in ("min_shapes", "max_shapes", "opt_shapes")]
            return tuple({name: list(shape) for name, shape in shapes.items()} for shapes in by_key)
        if self.shapes == "file":
            path = Path(setting(options, "shape_range_file"))
            if not path.is_file():
                raise ModelError("no such file", where=str(path), hint="check --option shape_range_file")
            return path
        if self.shapes == "collected":
            try:
                return self._collected()
            except PrecisionDebugError as error:
                if setting(self.options, "collect_shape_range"):
                    raise
                return self._leave_collected(say("no_ranges", detail=error.what))
        self.notes.append(say("shapes_alone"))
        shapes = {name: [int(dim) for dim in value.shape] for name, value in self.feeds[0].items()}
        return (shapes, shapes, shapes)

    def _leave_collected(self, why: Reason) -> Any:
        """Go on with the shapes of the inputs alone, given or of the first sample set."""
        self.shapes = "given" if setting(self.options, "min_shapes") else "feeds"
        self.notes.append(why)
        self.ranges = self._ranges()
        return self.ranges

    def _collected(self) -> Path:
        """Run every sample set, and each given shape, unoptimised on the CPU, where Paddle's own kernels work on any
        machine.
        """
        from .. import modes

        path = self.folder / "shape_range.pbtxt"
        tell(say("collecting", count=len(self.feeds)))
        with our_errors(self.model.path, mode=self.spec.mode, params=str(self.model.params)):
            config = make_config(modes.recipe("cpu_fp32"), self.model.file, self.model.params, {}, device="cpu")
            config.collect_shape_range_info(str(path))
        runner = Runner(config, where=self.model.path, mode=self.spec.mode)

        def look(_op_type: str, name: str, array: Any) -> None:
            if array.ndim == 0:
                self.scalars.add(name)

        for number, feeds in enumerate((*self.feeds, *self._range_feeds())):
            runner.run(feeds, None if number else look)
        runner.close()
        gc.collect()
        if not path.is_file():
            raise BackendError("Paddle wrote no shape range", where=self.model.path, hint="give --min_shapes … instead")
        count = len(self.feeds)
        self.notes.append(
            say("ranges_collected_given", count=count) if self._range_feeds() else say("ranges_collected", count=count)
        )
        return path

    def _range_feeds(self) -> list[Feeds]:
        """Return the first sample set in the smallest, the usual (more often, so that Paddle takes it) and the largest
        shape that the user gave, its values repeated. """
        shapes, first = _given_shapes(self.options), self.feeds[0]
        if "min_shapes" not in shapes:
            return []
        usual = ["opt_shapes"] * (len(self.feeds) + 1)
        return [
            {name: np.resize(np.asarray(value), shapes[key][name]) for name, value in first.items()}
            for key in ("min_shapes", *usual, "max_shapes")
        ]

    def inspected(self, folder: Path) -> tuple[EngineLayer, ...]:
        """Return the layers in the inspector files of one build; none where TensorRT took no subgraph."""
        found = self._written[folder].written()
        if not found:
            self.notes.append(say("no_inspector_file"))
            return ()
        return read_inspector(*found)
