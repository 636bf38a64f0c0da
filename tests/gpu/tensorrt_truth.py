"""What is true on this TensorRT, without the tool: the error of engines built by hand, against ONNX Runtime in FP32.

    python3.11 tensorrt_truth.py MODEL.onnx INPUTS.npz [--fp32] [--no_tf32] [--obey] [--keep REGEX …]
        [--unnamed_after LAYER] [--shapes NAME:1x384,511x384,511x384]

--keep: layers whose name or whose output's name matches stay in FP32 (precision and output types; implies --obey).
--unnamed_after: so do layers without a name of the model's that come after LAYER (norms and their constants' shuffles).
--list REGEX: print layers instead. cuBLAS and cuDNN tactics stay off: the packed environment has stubs of them.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import tensorrt as trt
from cuda.bindings import runtime as rt

LOGGER = trt.Logger(trt.Logger.ERROR)
BUILDER = trt.Builder(LOGGER)  # 8.6.1 crashes when its last builder goes


def parse(path):
    network = BUILDER.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, LOGGER)
    if not parser.parse(Path(path).read_bytes()):
        raise SystemExit("\n".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
    return network, parser


def kept(network, patterns, unnamed_after):
    seen = not unnamed_after
    for i in range(network.num_layers):
        layer = network.get_layer(i)
        names = [layer.name] + [layer.get_output(j).name for j in range(layer.num_outputs) if layer.get_output(j)]
        unnamed = unnamed_after and seen and layer.name.startswith("(Unnamed")
        if unnamed or any(re.search(p, n) for p in patterns for n in names):
            yield layer
        seen = seen or layer.name == unnamed_after


def build(a):
    network, _parser = parse(a.model)
    config = BUILDER.create_builder_config()
    config.set_tactic_sources(
        sum(1 << int(s) for s in (trt.TacticSource.EDGE_MASK_CONVOLUTIONS, trt.TacticSource.JIT_CONVOLUTIONS))
    )
    if not a.fp32:
        config.set_flag(trt.BuilderFlag.FP16)
    if a.no_tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    if a.obey or a.keep or a.unnamed_after:
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    count = 0
    for layer in kept(network, a.keep, a.unnamed_after):
        if layer.type in (trt.LayerType.CONSTANT, trt.LayerType.SHAPE) or layer.get_output(0).dtype != trt.float32:
            continue
        layer.precision = trt.float32
        count += 1
        for j in range(layer.num_outputs):
            layer.set_output_type(j, trt.float32)
    if a.shapes:
        profile = BUILDER.create_optimization_profile()
        for item in a.shapes:
            name, shapes = item.rsplit(":", 1)
            profile.set_shape(name, *[tuple(map(int, s.split("x"))) for s in shapes.split(",")])
        config.add_optimization_profile(profile)
    begun = time.time()
    plan = BUILDER.build_serialized_network(network, config)
    return plan, count, time.time() - begun


def run(plan, feeds):
    engine = trt.Runtime(LOGGER).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    outputs, held = {}, []
    for name, array in feeds.items():
        context.set_input_shape(name, array.shape)
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        kind = trt.nptype(engine.get_tensor_dtype(name))
        array = (
            np.ascontiguousarray(feeds[name].astype(kind))
            if name in feeds
            else np.empty(tuple(context.get_tensor_shape(name)), kind)
        )
        if name not in feeds:
            outputs[name] = array
        _, pointer = rt.cudaMalloc(max(array.nbytes, 16))
        held.append((name, pointer, array))
        rt.cudaMemcpy(pointer, array.ctypes.data, array.nbytes, rt.cudaMemcpyKind.cudaMemcpyHostToDevice)
        context.set_tensor_address(name, int(pointer))
    assert context.execute_async_v3(0)
    rt.cudaDeviceSynchronize()
    for name, pointer, array in held:
        if name in outputs:
            rt.cudaMemcpy(array.ctypes.data, pointer, array.nbytes, rt.cudaMemcpyKind.cudaMemcpyDeviceToHost)
    return outputs


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("inputs")
    p.add_argument("--fp32", action="store_true")
    p.add_argument("--no_tf32", action="store_true")
    p.add_argument("--obey", action="store_true")
    p.add_argument("--keep", nargs="*", default=[])
    p.add_argument("--unnamed_after", default="")
    p.add_argument("--shapes", nargs="*", default=[])
    p.add_argument("--list", default="")
    a = p.parse_args()
    if a.list:
        network, _ = parse(a.model)
        for i in range(network.num_layers):
            layer = network.get_layer(i)
            if re.search(a.list, layer.name) or re.search(a.list, layer.get_output(0).name):
                print(i, layer.name, str(layer.type).split(".")[-1], layer.get_output(0).name)
        return
    feeds = dict(np.load(a.inputs))
    session = ort.InferenceSession(a.model)
    want = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=False))
    plan, count, seconds = build(a)
    if plan is None:
        raise SystemExit("no engine")
    got = run(plan, feeds)
    for name, value in want.items():
        w = value.astype(np.float64)
        error = np.linalg.norm(got[name].astype(np.float64) - w) / np.linalg.norm(w)
        print(f"{name}: Rel L2 {error:.3g}, {count} layers kept, built in {seconds:.1f} s")


if __name__ == "__main__":
    main()
