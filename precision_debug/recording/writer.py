"""Writes a run to disk while it runs.

Tensor by tensor, since all tensors of a run together may not fit into memory.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import io
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import codec
from ..errors import OutputError, RecordingError
from ..feeds import save_feeds
from ..feeds.dtypes import Array, dtype_name, from_plain, to_plain
from ..numbers.arrays import as_array
from ..ownership import LIST, compute_crc, list_in
from ..protocols import Feeds
from ..reasons import as_reason, say
from ..records import TensorMeta
from .format import FORMAT, INPUTS, MANIFEST, OUTPUTS, TENSORS, VERSION, WEIGHT_BYTES, WEIGHTS, Noted, read_manifest

__all__ = ["RecordingWriter"]

_DRAFTS = tuple(f".{name}." for name in (INPUTS, OUTPUTS, WEIGHTS))
"""How the names of archives begin that are not finished yet."""


class RecordingWriter:
    """A hook that records every tensor it is shown, and a context manager around it.

    For example::

        with RecordingWriter("run") as writer:
            outputs = session.run(feeds, writer)
            writer.finish(mode="ort_fp32", backend="onnxruntime", feeds=feeds, outputs=outputs)

    Without ``finish`` the folder stays partial and ``open_recording`` refuses it. The folder must be new or empty;
    overwrite=True replaces a recording, finished or partial, whose files are as they were written; where one of them is
    somebody else's, nothing is touched. A name that comes again is kept again. Raises RecordingError.
    """

    def __init__(self, folder: str | Path, *, overwrite: bool = False) -> None:
        self.folder = Path(folder)
        self._calls: list[dict[str, Any]] = []
        self._last: dict[str, int] = {}
        try:
            _prepare(self.folder, overwrite)
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is held open between calls."""

    def __call__(self, op_type: str, tensor_name: str, tensor: Any, /) -> None:
        array = _to_storable(as_array(tensor, name=tensor_name), tensor_name)
        number = len(self._calls) + 1
        file = f"{TENSORS}/{number:06d}.npy"
        try:
            size, crc = _write_npy(self.folder / file, to_plain(array), functools.partial(self._announce, file))
        except OSError as error:
            raise self._failed(error) from error
        self._last[tensor_name] = number - 1
        self._calls.append(
            {
                "name": tensor_name,
                "op_type": op_type,
                "dtype": dtype_name(array.dtype),
                "shape": list(array.shape),
                "file": file,
                "bytes": size,
                "crc32": crc,
            }
        )

    def finish(
        self,
        *,
        mode: str = "",
        precision: str = "",
        backend: str = "",
        model: str = "",
        versions: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
        feeds: Feeds | None = None,
        tensors: Sequence[TensorMeta] = (),
        outputs: Mapping[str, Any] | None = None,
        weights: Mapping[str, Any] | None = None,
        digest: str = "",
    ) -> Path:
        """Complete the recording and return its folder.

        precision: what the run computed in (see RunMode). model: path of the model; a file's SHA-256 is kept with it.
        tensors: the session's list, for what the hook was not told (node, inputs, origin, what could not be seen).
        outputs: what ``run`` returned. weights: the model's own, to check an exported file's; left
        out above WEIGHT_BYTES. digest: of the model with all files that belong to it; "": of its own file.
        """
        graph = {meta.name: meta for meta in tensors}
        kept = dict(weights or {}) if sum(array.nbytes for array in (weights or {}).values()) <= WEIGHT_BYTES else {}
        for call in self._calls:
            meta = graph.get(call["name"])
            if meta is not None:
                call.update(node=meta.node, inputs=list(meta.inputs), is_output=meta.is_output)
        try:
            self._write_manifest({
                "format": FORMAT,
                "version": VERSION,
                "mode": mode,
                "precision": precision,
                "backend": backend,
                "model": _describe_model(model, digest),
                "versions": dict(versions or {}),
                "notes": [],
                **codec.encode(Noted(notes=tuple(map(as_reason, notes)))),
                "created": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                "inputs": self._archive(INPUTS, dict(feeds or {})),
                "outputs": self._outputs(outputs or {}),
                "weights": self._archive(WEIGHTS, kept) if kept else None,
                "graph": [codec.encode(meta) for meta in tensors],
                "tensors": self._calls,
            })  # fmt: skip
        except OSError as error:
            raise self._failed(error) from error
        except OutputError as error:
            raise RecordingError(error.what, where=error.where, hint=error.hint) from error
        return self.folder

    def _announce(self, file: str, size: int, crc: int) -> None:
        """Say that a file will be ours before it is there, so that a run that ends early leaves nobody's files."""
        with (self.folder / LIST).open("a", encoding="utf-8") as listed:
            listed.write(json.dumps({"name": file, "bytes": size, "crc32": crc}) + "\n")

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Whole or not at all: a folder without a manifest is a recording that was not completed."""
        draft = self.folder / f".{MANIFEST}.part"
        draft.write_text(json.dumps(manifest, indent=1, allow_nan=False), encoding="utf-8")
        os.replace(draft, self.folder / MANIFEST)

    def _archive(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        path = save_feeds(self.folder / name, values)
        size, crc = path.stat().st_size, compute_crc(path)
        self._announce(name, size, crc)
        return {"file": name, "names": list(values), "bytes": size, "crc32": crc}

    def _outputs(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs that equal the last value the hook was shown under their name are not stored again."""
        shown = {name: self._last[name] for name, value in outputs.items() if self._was_shown(name, value)}
        others = {name: value for name, value in outputs.items() if name not in shown}
        archive = self._archive(OUTPUTS, others) if others else None
        return {"order": list(outputs), "tensors": shown, "archive": archive}

    def _was_shown(self, name: str, value: Any) -> bool:
        if name not in self._last or value is None or isinstance(value, (list, tuple)):
            return False
        call = self._calls[self._last[name]]
        array = _to_storable(as_array(value, name=name), name)
        if call["dtype"] != dtype_name(array.dtype) or call["shape"] != list(array.shape):
            return False
        kept = from_plain(np.load(self.folder / call["file"], allow_pickle=False), call["dtype"])
        return kept.tobytes() == array.tobytes()

    def _failed(self, error: OSError) -> RecordingError:
        return RecordingError(
            f"the run cannot be recorded: {error.strerror or error}",
            where=str(self.folder),
            hint="free space there, record into another folder, or mark fewer tensors",
        )


def _prepare(folder: Path, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise RecordingError(say("is_a_file"), where=str(folder), hint=say("name_a_folder"))
    here = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    if here and not here & {MANIFEST, TENSORS}:
        raise RecordingError("the folder is not empty", where=str(folder), hint="record into a new folder")
    if here and not overwrite:
        kind = "a recording" if MANIFEST in here else "a partial recording"
        raise RecordingError(f"holds {kind} already", where=str(folder), hint="remove it, or record into a new folder")
    ours = _list_our_files(folder) if here else []
    (folder / MANIFEST).unlink(missing_ok=True)  # first, so that what follows leaves no folder that looks whole
    for path in ours:
        path.unlink(missing_ok=True)
    (folder / LIST).unlink(missing_ok=True)
    (folder / TENSORS).mkdir(parents=True, exist_ok=True)


def _list_our_files(folder: Path) -> list[Path]:
    """Return every file of a folder, all of which an earlier recording wrote, and nobody changed since.

    Raises RecordingError where one of them is somebody else's: nothing was removed yet.
    """
    known: dict[str, list[tuple[int, int]]] = {}
    for line in [*list_in(folder), *_read_manifest_files(folder)]:
        known.setdefault(line["name"], []).append((line["bytes"], line["crc32"]))
    last = list(known)[-1] if known else ""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name == TENSORS and path.is_dir() and not path.is_symlink():
            continue
        size = path.lstat().st_size
        draft = name == f".{MANIFEST}.part" or (name.startswith(_DRAFTS) and name.endswith(".part"))
        written = any(many == size for many, _ in known.get(name, ())) or (name == MANIFEST and MANIFEST in known)
        cut = name == last and all(size < many for many, _ in known[name])  # the run ended while it wrote this one
        ours = path.is_file() and not path.is_symlink() and (
            draft or cut or (written and (name == MANIFEST or (size, compute_crc(path)) in known[name]))
        )  # fmt: skip
        if not ours and name != LIST:
            what = f"holds '{name}', which is not a recording's, or was changed since"
            raise RecordingError(what, where=str(folder), hint="move it away, or record into a new folder")
        found.append(path)
    return found


def _read_manifest_files(folder: Path) -> list[dict[str, Any]]:
    """Return what a finished recording's manifest says of its files; nothing where there is none, or it is of another
    tool."""
    try:
        manifest = read_manifest(folder)
        archives = [manifest.get("inputs"), manifest.get("weights"), manifest.get("outputs", {}).get("archive")]
        entries = [{**one, "name": one["file"]} for one in (*manifest["tensors"], *filter(None, archives))]
        lines = [{key: one[key] for key in ("name", "bytes", "crc32")} for one in entries]
    except (RecordingError, KeyError, TypeError, AttributeError):
        return []
    return [{"name": MANIFEST, "bytes": -1, "crc32": -1}, *lines]


def _to_storable(array: Array, name: str) -> Array:
    """Return the array, text as fixed-width unicode. Raises RecordingError on Python objects."""
    if array.dtype.kind not in "OST":
        return array
    items = [
        item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item for item in array.ravel().tolist()
    ]
    if not all(isinstance(item, str) for item in items):
        raise RecordingError(f"tensor '{name}' holds Python objects", hint="mark the tensors that are arrays")
    return np.asarray(np.array(items, dtype=np.str_).reshape(array.shape))


def _write_npy(path: Path, array: Array, announce: Callable[[int, int], None]) -> tuple[int, int]:
    """Return the size and CRC-32 of the file, announced first. The array is written from its own memory if that is
    contiguous."""
    plain = np.asarray(array, order="C")
    header = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(plain.dtype), "fortran_order": False, "shape": plain.shape}
    np.lib.format.write_array_header_1_0(header, fields)
    data = plain.reshape(-1).view(np.uint8).data if plain.nbytes else b""
    size, crc = header.tell() + len(data), zlib.crc32(data, zlib.crc32(header.getvalue()))
    announce(size, crc)
    with path.open("wb") as file:
        file.write(header.getvalue())
        file.write(data)
    return size, crc


def _describe_model(path: str, whole: str) -> dict[str, Any]:
    file = Path(path) if path else None
    if file is None or not file.is_file():
        return {"path": path, "sha256": "", "bytes": 0, "digest": whole}
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    own = digest.hexdigest()
    return {"path": path, "sha256": own, "bytes": file.stat().st_size, "digest": whole or own}
