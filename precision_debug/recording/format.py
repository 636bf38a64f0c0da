"""The layout of a recorded run on disk.

    manifest.json        written last; a folder without it is partial
    tensors/000001.npy   one file a hook call, in execution order
    inputs.npz           the feeds (see feeds.save_feeds)
    outputs.npz          final outputs that no hook call showed; absent where there are none
    .precision_debug.jsonl   name, bytes and crc32 of each file, a line written before the file: what a partial one has
    weights.npz          the model's own weights, to check an exported file's; absent where the backend gives none

The manifest is one JSON object: format, version, mode, precision, backend, model {path, sha256, bytes, and digest, over
all files that belong to it}, versions,
notes, created, inputs, outputs and weights (names, where they lie), graph (TensorMeta of every tensor of the session,
by codec), and tensors: for each hook call its name, op_type, dtype, shape, file, bytes and crc32 of the file, and node,
inputs and is_output where the session knew them. Types that .npy does not hold (bfloat16, fp8, int4) are stored as
unsigned integers of their bits; the manifest's dtype says what they are. Nothing is pickled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..codec import parse_json
from ..errors import RecordingError
from ..reasons import Reason, say

__all__ = [
    "FORMAT", "INPUTS", "MANIFEST", "OUTPUTS", "TENSORS", "VERSION", "WEIGHTS", "WEIGHT_BYTES", "Noted",
    "is_outputs", "is_recording", "is_tensor_file", "read_manifest",
]  # fmt: skip

FORMAT = "precision_debug recording"
VERSION = 1
"""Of the folder's layout; a reader refuses one that it does not know."""

MANIFEST = "manifest.json"
TENSORS = "tensors"
INPUTS = "inputs.npz"
OUTPUTS = "outputs.npz"
WEIGHTS = "weights.npz"

WEIGHT_BYTES = 1 << 30
"""Weights of larger models are not kept."""

_AGAIN = "record the run again"


@dataclass(frozen=True, kw_only=True)
class Noted:
    """The manifest's notes, with the codes that stand beside them."""

    notes: tuple[Reason, ...] = ()


def is_recording(path: str | Path) -> bool:
    """Return whether a folder holds a finished recording, damaged or not."""
    try:
        return (Path(path) / MANIFEST).is_file()
    except (OSError, ValueError):
        return False


def is_outputs(path: str) -> bool:
    """Return whether a baseline of this name is such a file, or a folder of a file an iteration: a run mode has no
    ending."""
    if path.endswith(".json"):
        return True
    folder = Path(path)
    return folder.is_dir() and not is_recording(path) and any(folder.glob("[0-9]*.json"))


def is_tensor_file(name: object) -> bool:
    """Return whether a file name in a manifest is one that a recording can have; keeps readers inside the folder."""
    return isinstance(name, str) and re.fullmatch(rf"{TENSORS}/\d{{6,}}\.npy", name) is not None


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the manifest of a finished recording in this version's format. Raises RecordingError."""
    where = str(folder)
    if not folder.is_dir():
        raise RecordingError(say("no_such_folder"), where=where, hint=say("record_one"))
    if not (folder / MANIFEST).is_file():
        if (folder / TENSORS).is_dir():
            count = sum(1 for _ in (folder / TENSORS).glob("*.npy"))
            what = f"the recording is partial: it has {count} tensors and no {MANIFEST}, its run ended early"
            raise RecordingError(what, where=where, hint=_AGAIN)
        raise RecordingError(say("no_recording", file=MANIFEST), where=where, hint=say("record_one"))
    try:
        manifest = parse_json((folder / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise RecordingError(f"its {MANIFEST} cannot be read: {error}", where=where, hint=_AGAIN) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise RecordingError(f"its {MANIFEST} is not of a recording", where=where, hint="check the path")
    if manifest.get("version") != VERSION:
        what = f"it is in format {manifest.get('version')}, this version reads {VERSION}"
        raise RecordingError(what, where=where, hint=f"use the version of precision_debug that wrote it, or {_AGAIN}")
    return manifest
