"""Fetches from a legacy program through a copy that the program itself makes, so that what computes a value is left be.

A fetch asks its producer for FP32, and so another kernel runs. A reshape to the same shape takes bfloat16 and blocked
layouts as they are: it stands right behind the producer, and its own output is fetched. What comes back is held against
what Paddle's hook saw of that value in the program that nothing was added to, element for element.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import PrecisionDebugError
from precision_debug.onnx import wire
from precision_debug.protocols import Feeds

from .. import naming
from .bodies import make_ints, make_operator, make_variable
from .hook_check import Witness, digest
from .legacy_program import LegacyProgram, fetch_of
from .predictor import Runner

__all__ = ["Copies", "with_copies"]

Array = np.ndarray[Any, Any]

_BLOCKS, _BLOCK_OPS = 1, 4
_BUILDS = 6
"""Programs that are built at most to confirm copies: each is a predictor of the whole model."""


def with_copies(program: LegacyProgram, ranks: Mapping[str, int], path: Path) -> Path:
    """ranks: the values to copy, by our names, and their numbers of dimensions. They come back, beside the model's own
    outputs, under ``naming.fetch_name``, those without dimensions with one.
    """
    last: dict[int, list[str]] = collections.defaultdict(list)
    operators = program.operators[0]
    column = sum(op.type == "fetch" for op in operators)
    for name in ranks:
        written = program.variable_of(name)
        places = [place for place, op in enumerate(operators) if any(written in names for _, names in op.outputs)]
        last[places[-1]].append(name)
    made: list[wire.Field] = []
    declared: list[wire.Field] = []
    fetches: list[wire.Field] = []
    place = -1
    for field in program.blocks[0]:
        made.append(field)
        if field.tag != _BLOCK_OPS:
            continue
        place += 1
        for name in last.get(place, ()):
            own, code = naming.fetch_name(name), program.code(program.variable(program.variable_of(name)).dtype)
            declared += [make_variable(own, code, [-1]), make_variable(f"{own}/shape", code, [-1])]
            outs = {"Out": [own], "XShape": [f"{own}/shape"]}
            shape = [make_ints("shape", [0] * ranks[name] or [-1])]
            made.append(make_operator("reshape2", {"X": [program.variable_of(name)]}, outs, shape))
            fetches.append(wire.encode_text(_BLOCK_OPS, fetch_of(own, column + len(fetches))))
    block, done = wire.join_message([*declared, *made, *fetches]), False
    fields = []
    for field in program.fields:
        first = field.tag == _BLOCKS and not done
        fields.append(wire.encode_text(_BLOCKS, block) if first else field)
        done = done or first
    path.write_bytes(wire.join_message(fields))
    return path


class Copies:
    """batches: names to the program from which they are fetched together. Empty until ``find``."""

    def __init__(self, program: LegacyProgram, start: Callable[[Path], Runner], folder: Path) -> None:
        self._program, self._start, self._folder = program, start, folder
        self._ranks: Mapping[str, int] = {}
        self.batches: dict[tuple[str, ...], Path] = {}
        self.builds = 0

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for batch in self.batches for name in batch)

    def find(
        self, batches: Sequence[tuple[str, ...]], ranks: Mapping[str, int], witness: Witness, feeds: Feeds
    ) -> None:
        """batches: what may be fetched together. witness: of the program that nothing was added to."""
        self._ranks = ranks
        found: dict[str, tuple[int, int]] = {}
        programs: dict[Path, list[str]] = {}
        queue = [tuple(name for name in batch if name in ranks) for batch in batches]
        while (queue := [batch for batch in queue if batch]) and self.builds < _BUILDS:
            batch = queue.pop(0)
            self.builds += 1
            path = self._folder / f"copied_{self.builds}.pdmodel"
            right = self._right(with_copies(self._program, {name: ranks[name] for name in batch}, path), witness, feeds)
            found.update(right)
            programs[path] = list(right)
            rest = tuple(name for name in batch if name not in right)
            if right:
                queue.append(rest)
            elif len(rest) > 1:
                queue += [rest[: len(rest) // 2], rest[len(rest) // 2 :]]
        # a value that was overwritten by another one would have that one's numbers
        shared = collections.Counter(found.values())
        for path, names in programs.items():
            sure = tuple(name for name in names if shared[found[name]] <= witness.count(found[name]))
            if sure:
                self.batches[sure] = path

    def _right(self, path: Path, witness: Witness, feeds: Feeds) -> dict[str, tuple[int, int]]:
        try:
            runner = self._start(path)
        except PrecisionDebugError:
            return {}
        try:
            runner.execute(feeds)
            there = set(runner.output_names)
            values = {
                name: digest(runner.output(naming.fetch_name(name)))
                for name in self._ranks
                if naming.fetch_name(name) in there
            }
        except PrecisionDebugError:
            return {}
        finally:
            runner.close()
        return {name: value for name, value in values.items() if witness.count(value)}

    def shaped(self, name: str, array: Array) -> Array:
        """Return a fetched copy in the shape of what it is a copy of."""
        return array.reshape(()) if not self._ranks[name] else array
