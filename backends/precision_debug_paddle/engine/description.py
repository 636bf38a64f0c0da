"""What a Paddle program holds; it is read without Paddle, and without its weights' values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from precision_debug.errors import ModelError
from precision_debug.protocols.description import DescribedLayer, DescribedWeight, Description
from precision_debug.records import InputMeta

from ..reasons import say
from .legacy_program import LegacyProgram, read_legacy
from .pir_program import PirProgram, read_pir

__all__ = ["describe"]


def describe(path: str) -> Description:
    """See ``protocols.Describer``."""
    file = Path(path)
    if not file.is_file():
        raise ModelError("no such file", where=path, hint="name the .pdmodel or .json")
    try:
        program: LegacyProgram | PirProgram = read_pir(file) if file.suffix.lower() == ".json" else read_legacy(file)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", where=path) from error
    attributes = {name: attributes_of for name, _, _, attributes_of in program.reading()}
    layers = [
        DescribedLayer(
            op_type=value.op_type, name=value.node or value.name, inputs=value.inputs, outputs=(value.name,),
            attributes={key: str(item) for key, item in attributes.get(value.name, {}).items()},
        )
        for value in program.values
    ]  # fmt: skip
    outputs = [
        InputMeta(name=value.output, dtype=value.dtype, shape=value.shape) for value in program.values if value.output
    ]
    return Description(
        format="Paddle PIR program" if program.pir else "Paddle legacy program",
        inputs=program.inputs, outputs=outputs, layers=layers, weights=_weights(program),
        facts=_facts(program),
    )  # fmt: skip


def _facts(program: LegacyProgram | PirProgram) -> Sequence[str]:
    if not program.statistics:
        return ()
    return (say("records_left_out", count=program.statistics),)


def _weights(program: LegacyProgram | PirProgram) -> Iterator[DescribedWeight]:
    for name in sorted(program.parameters()):
        dtype, shape = program.declared(name)
        yield DescribedWeight(name=name, dtype=dtype, shape=shape or ())
