"""Whether the engine that the tool compares is the one that trtexec's flags give: the same layers, the same precisions.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/tensorrt_same_engine.py [NAME …]

The command builds its engine and saves it, with a timing cache. Then TensorRT's own builder, with that cache and with
nothing but the FP16 flag and the tactic sources, builds two engines: one as trtexec does by default, whose layers have
names, and one whose layers tell their precisions (DETAILED). PASS: the names are those of the first, names and
precisions those of the second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
from tensorrt_fixes import MODELS, OUT, SOURCES


def layers_of(trt: Any, logger: Any, plan: bytes) -> list[Any]:
    """Each layer as the engine's inspector tells it: its name, or all that it knows."""
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return list(json.loads(text, strict=False)["Layers"])


def name_of(layer: Any) -> str:
    return str(layer["Name"] if isinstance(layer, dict) else layer)


def precision_of(layer: Any) -> tuple[str, ...]:
    ends = [*layer["Inputs"], *layer["Outputs"]]
    return (layer["Name"], layer.get("TacticName", ""), *(end["Format/Datatype"] for end in ends))


def build(trt: Any, logger: Any, builder: Any, model: Path, cache: Path, *, detailed: bool) -> bytes:
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model.read_bytes()):
        raise SystemExit(str(parser.get_error(0)))
    config = builder.create_builder_config()
    config.set_tactic_sources(sum(1 << int(getattr(trt.TacticSource, name)) for name in SOURCES.split(",")))
    config.set_flag(trt.BuilderFlag.FP16)
    if detailed:
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    timing = config.create_timing_cache(cache.read_bytes())
    config.set_timing_cache(timing, False)
    return bytes(builder.build_serialized_network(network, config))


def check(name: str) -> bool:
    import numpy as np
    import onnx
    import tensorrt as trt

    model, feeds, _ = MODELS[name]()
    path, cache, engine = (OUT / f"same_{name}.{ending}" for ending in ("onnx", "cache", "engine"))
    onnx.save(model, path)
    np.savez(path.with_suffix(".npz"), **feeds)
    command = [sys.executable, "-m", "precision_debug", "--model_file", str(path), "--inputs",
               str(path.with_suffix(".npz")), "--run_mode", "trt_fp16", "--tactic_sources", *SOURCES.split(","),
               "--timing_cache", str(cache), "--save_engine", str(engine), "--explain", "off", "--mark",
               model.graph.output[0].name, "--output", str(path.with_suffix(".json"))]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not engine.exists():
        print(f"FAIL {name}: no engine was saved: {done.stderr[-600:]}", flush=True)
        return False
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)  # held until the end: 8.6.1 crashes when its last builder goes
    ours = layers_of(trt, logger, engine.read_bytes())
    plain = layers_of(trt, logger, build(trt, logger, builder, path, cache, detailed=False))
    detailed = layers_of(trt, logger, build(trt, logger, builder, path, cache, detailed=True))
    names = [name_of(layer) for layer in ours] == [name_of(layer) for layer in plain]
    wholes = [precision_of(layer) for layer in ours], [precision_of(layer) for layer in detailed]
    precisions = wholes[0] == wholes[1]
    word = "PASS" if names and precisions else "FAIL"
    how = "equal" if names else "differ", "equal" if precisions else "differ"
    print(f"{word} {name}: {len(ours)} layers, {len(plain)} and {len(detailed)} by hand; names {how[0]}, precisions "
          f"{how[1]}", flush=True)  # fmt: skip
    for what, mine, theirs in (
        ("name", [name_of(layer) for layer in ours], [name_of(layer) for layer in plain]), ("precision", *wholes)
    ):  # fmt: skip
        apart = [(str(a), str(b)) for a, b in zip(mine, theirs, strict=False) if a != b]
        for pair in apart[:3]:
            print(f"  {what}: {pair[0][:300]} | {pair[1][:300]}", flush=True)
    for file in OUT.glob(f"same_{name}.*"):
        file.unlink()
    sys.stdout.flush()
    return names and precisions


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:] or ["tower", "decomposed", "encoder", "points", "resnet18"]
    if len(names) == 1:
        status = 0 if check(names[0]) else 1
        sys.stdout.flush()
        os._exit(status)  # the builder's own end crashes 8.6.1
    return max(subprocess.run([sys.executable, __file__, name], check=False).returncode for name in names)


if __name__ == "__main__":
    raise SystemExit(main())
