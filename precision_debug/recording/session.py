"""A recorded run as a session: it replays what was seen, with no framework behind it.

As a session, and not as a format of its own, so that pairing, judging and reports need not know that a side was
recorded on another machine.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import codec
from ..errors import InputError, PrecisionDebugError, RecordingError
from ..feeds.dtypes import Array, cast_exactly, from_plain
from ..feeds.npz import load_npz
from ..inspector import EngineLayer
from ..ownership import compute_crc
from ..protocols import Feeds, Hook
from ..reasons import Reason, say
from ..records import Doubt, TensorMeta
from ..safety.untrusted import refuse_special
from .format import Noted, is_tensor_file, read_manifest

__all__ = ["RecordedSession", "open_recording"]

_DAMAGED = "copy it again from where it was made, or record the run again"


def open_recording(folder: str | Path) -> RecordedSession:
    """Open a recorded run.

    At once: the manifest, the inputs with their checksum, and that every file is there in its full size. A tensor's
    checksum is compared when the tensor is read. Raises RecordingError with what is missing or damaged.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    try:
        return RecordedSession(place, manifest)
    except PrecisionDebugError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        what = f"its manifest.json is damaged: {type(error).__name__} {error}"
        raise RecordingError(what, where=str(place), hint=_DAMAGED) from error


class RecordedSession:
    """What ``open_recording`` returns; a protocols.Session.

    mode, backend, model (path), model_sha256, model_digest, created: of the run that was recorded. feeds: its inputs,
    to be given to the other side. A tensor that was not recorded is listed with the reason.
    """

    doubts: Sequence[Doubt] = ()
    layers: Sequence[EngineLayer] = ()
    alone = ""
    replacer = None

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        self.mode = str(manifest["mode"])
        self.arithmetic = str(manifest.get("precision", ""))  # older recordings do not say
        self.backend = str(manifest["backend"])
        self.model = str(manifest["model"]["path"])
        self.model_sha256 = str(manifest["model"]["sha256"])
        self.model_digest = str(manifest["model"].get("digest", self.model_sha256))  # older ones know one file
        self.created = str(manifest["created"])
        self._versions = {str(name): str(version) for name, version in manifest["versions"].items()}
        replayed = say("replayed", folder=folder, when=self.created)
        self._notes = (
            *codec.decode(Noted, {"notes": manifest["notes"], "codes": manifest.get("codes")}).notes,
            replayed,
        )
        self._calls: list[dict[str, Any]] = [dict(call) for call in manifest["tensors"]]
        self._outputs = dict(manifest["outputs"])
        _check_types(
            self._calls, self._outputs, [manifest["inputs"], self._outputs["archive"], manifest.get("weights")]
        )
        self._weights = manifest.get("weights")
        _check_files(folder, self._calls, [manifest["inputs"], self._outputs["archive"], self._weights])
        self._tensors = _list_tensors([codec.decode(TensorMeta, meta) for meta in manifest["graph"]], self._calls)
        self.feeds: dict[str, Any] = _read_archive(folder, manifest["inputs"])

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Every tensor of the recorded session's graph, in its order."""
        return self._tensors

    @property
    def notes(self) -> Sequence[Reason]:
        """The recorded session's, and where and when it was recorded."""
        return self._notes

    @property
    def versions(self) -> Mapping[str, str]:
        """Framework and device of the recorded session, name to version."""
        return self._versions

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """Call the hook with each recorded tensor, in order, and return the recorded outputs.

        Values are read-only views of memory-mapped files. Raises InputError where the feeds are not the recorded
        ones, RecordingError where a file is damaged.
        """
        self._check_feeds(feeds)
        wanted = None if names is None else frozenset(names)
        if hook is not None:
            for call in self._calls:
                if wanted is None or call["name"] in wanted:
                    hook(call["op_type"], call["name"], self._read(call))
        archive = self._outputs["archive"]
        others = _read_archive(self.folder, archive) if archive else {}
        shown = self._outputs["tensors"]
        try:
            return {
                name: self._read(self._calls[shown[name]]) if name in shown else others[name]
                for name in self._outputs["order"]
            }
        except KeyError as error:
            what = f"its output {error} was neither recorded nor kept"
            raise RecordingError(what, where=str(self.folder), hint=_DAMAGED) from error

    def weights(self) -> Mapping[str, Any]:
        """Return the recorded model's own, by name; empty where they were not kept. Raises RecordingError."""
        return _read_archive(self.folder, self._weights) if self._weights else {}

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _read(self, call: Mapping[str, Any]) -> Array:
        path = self.folder / call["file"]
        try:
            raw = np.memmap(path, dtype=np.uint8, mode="r")
            if raw.size != call["bytes"] or zlib.crc32(raw.data) != call["crc32"]:
                what = f"{call['file']} ('{call['name']}') is damaged: its checksum is not the recorded one"
                raise RecordingError(what, where=str(self.folder), hint=_DAMAGED)
            elements = math.prod(call["shape"])
            mapped = np.load(path, mmap_mode="r" if elements else None, allow_pickle=False)
            array = from_plain(np.asarray(mapped), call["dtype"])
        except (OSError, ValueError, EOFError) as error:
            what = f"{call['file']} ('{call['name']}') cannot be read: {error}"
            raise RecordingError(what, where=str(self.folder), hint=_DAMAGED) from error
        if list(array.shape) != call["shape"]:
            what = f"{call['file']} ('{call['name']}') has shape {list(array.shape)}, the manifest says {call['shape']}"
            raise RecordingError(what, where=str(self.folder), hint=_DAMAGED)
        return array

    def _check_feeds(self, feeds: Feeds) -> None:
        hint = "feed both sides with the recording's own inputs (leave --inputs out)"
        if set(feeds) != set(self.feeds):
            what = f"was recorded with the inputs {sorted(self.feeds)}, not {sorted(feeds)}"
            raise InputError(what, where=str(self.folder), hint=hint)
        for name, recorded in self.feeds.items():
            if not _is_same_input(recorded, feeds[name]):
                raise InputError(f"input '{name}' is not the recorded one", where=str(self.folder), hint=hint)


def _check_types(calls: Sequence[Mapping[str, Any]], outputs: Mapping[str, Any], archives: Sequence[Any]) -> None:
    """Raises TypeError or KeyError where a manifest's entries are of other types than they must be."""
    for call in calls:
        texts = (call["name"], call["op_type"], call["dtype"], call["file"])
        numbers = (call["bytes"], call["crc32"], *_list(call["shape"]))
        if not all(type(text) is str for text in texts) or not all(
            type(n) is int and 0 <= n < 1 << 63 for n in numbers
        ):
            raise TypeError(f"tensor {call['name']!r} has an entry of another type")
    shown = outputs["tensors"]
    if not isinstance(shown, dict) or not all(type(n) is int and 0 <= n < len(calls) for n in shown.values()):
        raise TypeError("outputs name no tensors")
    if not all(type(name) is str for name in _list(outputs["order"])):
        raise TypeError("outputs are not names")
    for entry in archives:
        if entry and [type(entry[key]) for key in ("file", "bytes", "crc32")] != [str, int, int]:
            raise TypeError("an archive has an entry of another type")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a {type(value).__name__} in place of a list")
    return value


def _is_same_input(recorded: Any, fed: Any) -> bool:
    """Return the same values bit for bit, or the same numbers in another type."""
    if recorded is None or fed is None:
        return recorded is fed
    if isinstance(recorded, list):
        fed = list(fed) if isinstance(fed, (list, tuple)) else []
        return len(recorded) == len(fed) and all(map(_is_same_input, recorded, fed))
    array = np.asarray(fed)
    if array.shape != recorded.shape:
        return False
    if recorded.dtype.kind == "U":
        return bool(np.array_equal(recorded, array.astype(np.str_)))
    same = recorded if array.dtype == recorded.dtype else cast_exactly(recorded, array.dtype)
    return same is not None and same.tobytes() == array.tobytes()


def _list_tensors(graph: Sequence[TensorMeta], calls: Sequence[Mapping[str, Any]]) -> tuple[TensorMeta, ...]:
    """Return the graph's tensors, those without a value marked so; then what only the hook knew."""
    times = Counter(str(call["name"]) for call in calls)
    kept = {name if time == 0 else f"{name}#{time + 1}" for name, count in times.items() for time in range(count)}
    known = {meta.name for meta in graph}
    listed = [
        meta if meta.unseen or meta.name in kept else dataclasses.replace(meta, unseen=say("not_recorded"))
        for meta in graph
    ]
    for call in calls:
        if call["name"] not in known:
            known.add(call["name"])
            shape = tuple(call["shape"])
            listed.append(TensorMeta(name=call["name"], op_type=call["op_type"], dtype=call["dtype"], shape=shape))
    return tuple(listed)


def _check_files(
    folder: Path, calls: Sequence[Mapping[str, Any]], archives: Sequence[Mapping[str, Any] | None]
) -> None:
    for call in calls:
        if not is_tensor_file(call["file"]):
            raise RecordingError(f"its manifest.json names the file '{call['file']}'", where=str(folder), hint=_DAMAGED)
    missing: list[str] = []
    for entry in [*calls, *(archive for archive in archives if archive)]:
        file = folder / entry["file"]
        refuse_special(file, RecordingError)
        try:
            size = file.stat().st_size
        except OSError:
            missing.append(entry["file"])
            continue
        if size != entry["bytes"]:
            what = f"{entry['file']} has {size} bytes, {entry['bytes']} were recorded"
            raise RecordingError(what, where=str(folder), hint=_DAMAGED)
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        verb = "are" if len(missing) > 1 else "is"
        raise RecordingError(f"{', '.join(missing[:3])}{more} {verb} missing", where=str(folder), hint=_DAMAGED)


def _read_archive(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    path = folder / Path(entry["file"]).name
    try:
        if compute_crc(path) != entry["crc32"]:
            raise RecordingError(
                f"{path.name} is damaged: its checksum is not the recorded one", where=str(folder), hint=_DAMAGED
            )
        return load_npz(path)[0]
    except (OSError, InputError) as error:
        raise RecordingError(f"{path.name} cannot be read: {error}", where=str(folder), hint=_DAMAGED) from error
