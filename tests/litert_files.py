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


def change_bias(name: str, change: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[Any], None]:
    """A bias with other integers, or another scale of its own; change: given both, it returns both."""

    def changed_in(flat: Any) -> None:
        bias = tensor(flat, name)
        codes, scale = change(flat.array(bias).copy(), np.asarray(bias.quantization.scale, np.float32))
        flat.model.buffers[bias.buffer].data = codes.astype(np.int32).view(np.uint8)
        bias.quantization.scale = scale

    return changed_in


def convolve(path: Path, kind: str, whole: bool) -> Path:
    """A CONV_2D or TRANSPOSE_CONV of ``x`` with a weight ``w`` and a bias ``b``, then TANH, in float or INT8."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    random, model, graph = np.random.default_rng(0), schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers, model.operatorCodes, model.subgraphs = 3, [schema.BufferT()], [], [graph]
    graph.tensors, graph.operators, graph.name = [], [], b"main"

    def add(name: str, shape: list[int], held: str, data: Any = None, scale: Any = None) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.hasRank, made.buffer = name.encode(), np.array(shape, np.int32), True, 0
        made.type = getattr(schema.TensorType, held)
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            model.buffers.append(buffer)
            made.buffer = len(model.buffers) - 1
        if scale is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = np.atleast_1d(np.asarray(scale, np.float32))
            made.quantization.zeroPoint = np.zeros(np.size(scale), np.int64)
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    def put(op_type: str, reads: list[int], made: int, options: str = "", version: int = 1) -> None:
        code, op = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode, code.version = getattr(schema.BuiltinOperator, op_type), version
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        model.operatorCodes.append(code)
        op.opcodeIndex, op.inputs, op.outputs = len(model.operatorCodes) - 1, np.array(reads, np.int32), [made]
        if options:
            op.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            op.builtinOptions = getattr(schema, f"{options}T")()
            op.builtinOptions.strideW = op.builtinOptions.strideH = 2 if kind == "TRANSPOSE_CONV" else 1
            op.builtinOptions.padding = 0
        graph.operators.append(op)

    w, b = (random.normal(size=shape).astype(np.float32) for shape in ((6, 3, 3, 4), 6))
    w *= np.float32(0.3)
    shape = [1, 16, 16, 6] if kind == "TRANSPOSE_CONV" else [1, 8, 8, 6]
    x = read = add("x", [1, 8, 8, 4], "FLOAT32")
    if whole:
        steps = np.abs(w).max((1, 2, 3)) / 127
        sums, codes = steps * 4 / 127, np.round(w / steps[:, None, None, None]).astype(np.int8)
        read = add("xq", [1, 8, 8, 4], "INT8", scale=4 / 127)
        put("QUANTIZE", [x], read)
        weight = add("w", [*w.shape], "INT8", codes, steps)
        bias = add("b", [6], "INT32", np.round(b / sums).astype(np.int32), sums)
        made = add("yq", shape, "INT8", scale=8 / 127)
    else:
        weight, bias = add("w", [*w.shape], "FLOAT32", w), add("b", [6], "FLOAT32", b)
        made = add("y", shape, "FLOAT32")
    if kind == "TRANSPOSE_CONV":
        size = add("size", [4], "INT32", np.array(shape, np.int32))
        put(kind, [size, weight, read, bias], made, "TransposeConvOptions", 3)
    else:
        put(kind, [read, weight, bias], made, "Conv2DOptions", 3)
        graph.operators[-1].builtinOptions.dilationWFactor = graph.operators[-1].builtinOptions.dilationHFactor = 1
    if whole:
        shown = add("y", shape, "FLOAT32")
        put("DEQUANTIZE", [made], shown, version=2)
        made = shown
    put("TANH", [made], add("z", shape, "FLOAT32"))
    graph.inputs, graph.outputs = [x], [len(graph.tensors) - 1]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path
