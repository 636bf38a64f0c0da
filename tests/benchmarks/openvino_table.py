"""OpenVINO on real models, in every mode that runs here: what was compared, what really ran, and whether it is exact.

    PRECISION_DEBUG_WILD=FOLDER python tests/benchmarks/openvino_table.py [TAG …] [--baseline MODE]

FOLDER has list.txt (tag, model, inputs); examples/digits is always one of them. The share is of what could have been
compared: what was fused away, or left out as a constant, is not missing.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import precision_debug
from precision_debug import registry
from precision_debug.errors import PrecisionDebugError
from precision_debug.records import ModelFiles, Row, SessionSpec, Status
from precision_debug.report.model import count_coverage

ROOT = Path(__file__).resolve().parents[2]
TAGS = ("digits", "det", "rec", "nude", "minilm")
HEAD = (
    "model", "mode", "rows", "compared", "fused away", "unmatched", "not compared", "share", "worst output Rel L2",
    "bit-identical", "layers by precision", "state", "s",
)  # fmt: skip


def models() -> dict[str, tuple[str, str]]:
    """Tag to (model, inputs)."""
    digits = ROOT / "examples" / "digits"
    found = {"digits": (str(digits / "digits.onnx"), str(digits / "test_images.npz"))}
    folder = os.environ.get("PRECISION_DEBUG_WILD", "")
    for line in Path(folder, "list.txt").read_text().splitlines() if folder else ():
        tag, model, inputs = line.split()
        found[tag] = (str(Path(folder, model)), str(Path(folder, inputs)))
    return found


def exact(model: str, inputs: str, mode: str) -> str:
    """Whether outputs of an observed run are those of a session that shows nothing, and the tensors an own one's."""
    backend = next(one for one in registry.backends() if one.name == "openvino")
    spec = SessionSpec(model=ModelFiles(model_file=model), mode=mode)
    given = dict(np.load(inputs))
    feeds = {meta.name: given[meta.name] for meta in backend.inputs(spec)}
    session = backend.open(spec, [feeds])
    try:
        shown: dict[str, bytes] = {}

        def hook(_op: str, name: str, tensor: object, /) -> None:
            shown[name] = np.asarray(tensor).tobytes()

        bare = session.run(feeds)
        observed = session.run(feeds, hook)
        same = all(bare[name].tobytes() == observed[name].tobytes() == shown.get(name) for name in bare)
        noted = any("other bits" in note or "changes the" in note for note in session.notes)
        return "no" if not same else "yes, but: see the notes" if noted else "yes"
    finally:
        session.close()


def line(tag: str, model: str, inputs: str, mode: str, baseline: str) -> Iterator[str]:
    began = time.monotonic()
    try:
        report = precision_debug.compare(model, run_mode=mode, baseline=baseline, inputs=inputs)
    except PrecisionDebugError as error:
        yield from (tag, mode, *[""] * (len(HEAD) - 3), str(error)[:90])
        return
    seconds = time.monotonic() - began
    rows: list[Row] = list(report.rows)
    counts = {status: sum(row.status is status for row in rows) for status in Status}
    compared = [row for row in rows if row.comparison is not None]
    worst = max((row.relative_l2 or 0.0 for row in compared if row.is_output), default=0.0)
    ran = sorted(precisions(report.layers).items(), key=lambda item: -item[1])
    yield tag
    yield mode
    yield str(len(rows))
    yield str(len(compared))
    yield str(counts[Status.FUSED_AWAY])
    yield str(counts[Status.UNMATCHED])
    yield str(counts[Status.NOT_COMPARED])
    yield f"{count_coverage(rows).share:.1%}"
    yield f"{worst:.3g}"
    yield exact(model, inputs, mode)
    yield ", ".join(f"{name} {number}" for name, number in ran)
    explanation = report.explanation
    yield f"{explanation.state} ({explanation.method})" if explanation is not None else ""
    yield f"{seconds:.1f}"


def precisions(layers: tuple[object, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for layer in layers:
        if layer.layer_type not in {"Reorder", "Reshape", "Reference", "ShapeOf"}:  # type: ignore[attr-defined]
            found[layer.weights_type] = found.get(layer.weights_type, 0) + 1  # type: ignore[attr-defined]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tags", nargs="*", default=TAGS)
    parser.add_argument("--baseline", default="")
    parser.add_argument("--modes", nargs="*", default=())
    given = parser.parse_args()
    backend = next(one for one in registry.backends() if one.name == "openvino")
    modes = given.modes or [mode.name for mode in backend.run_modes if mode.name != "ov_fp32" or given.baseline]
    print("|", " | ".join(HEAD), "|\n" + "|---" * len(HEAD) + "|")
    for tag in given.tags:
        for mode in modes:
            found = backend.availability(mode)
            refused = [tag, mode, f"needs {found.needs}"]
            cells = list(line(tag, *models()[tag], mode, given.baseline)) if found.ok else refused
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
