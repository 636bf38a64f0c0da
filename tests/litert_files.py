"""Files of tests/data/litert, and faults that are planted into a quantised one as a calibration or a converter does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data" / "litert"
DIGITS = Path(__file__).parents[1] / "examples" / "digits"


def images(count: int = 360) -> Any:
    """Digits as the files want them: [count, 8, 8, 1], float32 from 0 to 1."""
    return np.ascontiguousarray(np.load(DIGITS / "test_images.npz")["image"][:count].transpose(0, 2, 3, 1))


def changed(target: Path, change: Callable[[Any], None], source: str = "digits_int8.tflite") -> Path:
    from precision_debug_litert.engine.flat import Flat

    flat = Flat.read(str(DATA / source))
    change(flat)
    target.write_bytes(flat.packed())
    return target


def tensor(flat: Any, name: str) -> Any:
    return next(one for one in flat.main.tensors if one.name.decode() == name)


def saturate(name: str, factor: float) -> Callable[[Any], None]:
    """The range of a tensor is so many times too small: what lies beyond is cut off."""

    def change(flat: Any) -> None:
        one = tensor(flat, name)
        one.quantization.scale = np.asarray(one.quantization.scale, np.float32) / factor
        index = flat.main.tensors.index(one)
        for op in flat.main.operators:  # a bias is held in the product of both scales
            if len(op.inputs) == 3 and op.inputs[0] == index:
                bias = flat.main.tensors[op.inputs[2]]
                value = np.round(flat.array(bias) * factor).astype(np.int32)
                flat.model.buffers[bias.buffer].data = value.view(np.uint8)
                bias.quantization.scale = np.asarray(bias.quantization.scale, np.float32) / factor

    return change


def zero_point(name: str, shift: int) -> Callable[[Any], None]:
    """A wrong zero point: the top of the range is cut off, and as much below is never used."""

    def change(flat: Any) -> None:
        told = tensor(flat, name).quantization
        told.zeroPoint = np.asarray(told.zeroPoint) + shift

    return change


def with_state(flat: Any) -> None:
    """A streaming model: the image is added to what the last run left, and the sum is left for the next.

    As converters write it: CALL_ONCE runs a subgraph that gives the variable its first value.
    """
    from ai_edge_litert import schema_py_generated as schema

    main, model = flat.main, flat.model
    image = main.inputs[0]

    def code(name: str) -> int:
        made = schema.OperatorCodeT()
        made.builtinCode, made.version = getattr(schema.BuiltinOperator, name), 1
        made.deprecatedBuiltinCode = min(made.builtinCode, 127)
        model.operatorCodes.append(made)
        return len(model.operatorCodes) - 1

    def new(graph: Any, name: str, like: Any = None, data: Any = None) -> int:
        one = schema.TensorT()
        one.name, one.hasRank, one.buffer = name.encode(), True, 0
        if like is None:
            one.type, one.shape = schema.TensorType.RESOURCE, np.zeros(0, np.int32)
        else:
            one.type, one.quantization, one.shape = like.type, like.quantization, np.array([1, 8, 8, 1], np.int32)
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = data.reshape(-1).view(np.uint8)
            model.buffers.append(buffer)
            one.buffer = len(model.buffers) - 1
        graph.tensors.append(one)
        return len(graph.tensors) - 1

    def op(kind: str, reads: list[int], makes: list[int], options: str = "", **said: Any) -> Any:
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = code(kind), reads, makes
        if options:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            made.builtinOptions = getattr(schema, f"{options}T")()
            vars(made.builtinOptions).update(said)
        return made

    like = main.tensors[image]
    for graph_end in (like, main.tensors[main.outputs[0]]):
        graph_end.shapeSignature = None
    like.shape = np.array([1, 8, 8, 1], np.int32)
    first = schema.SubGraphT()
    first.tensors, first.inputs, first.outputs, first.name = [], [], [], b"begin"
    there, value = (
        new(first, "state"),
        new(first, "begin", like, np.full(64, int(like.quantization.zeroPoint[0]), np.int8)),
    )
    named: Any = {"container": b"", "sharedName": b"state"}
    first.operators = [
        op("VAR_HANDLE", [], [there], "VarHandleOptions", **named),
        op("ASSIGN_VARIABLE", [there, value], [], "AssignVariableOptions"),
    ]
    model.subgraphs.append(first)
    handle, last, total = new(main, "state"), new(main, "last", like), new(main, "total", like)
    for one in main.operators:
        one.inputs = [total if int(index) == image else int(index) for index in one.inputs]
    main.operators[:0] = [
        op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=len(model.subgraphs) - 1),
        op("VAR_HANDLE", [], [handle], "VarHandleOptions", **named),
        op("READ_VARIABLE", [handle], [last], "ReadVariableOptions"),
        op("ADD", [image, last], [total], "AddOptions"),
        op("ASSIGN_VARIABLE", [handle, total], [], "AssignVariableOptions"),
    ]
