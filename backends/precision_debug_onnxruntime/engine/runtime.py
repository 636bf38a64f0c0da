"""Opens ONNX Runtime sessions, and turns its errors into one line of ours."""

from __future__ import annotations

import errno
import re
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_debug.errors import (
    BackendError,
    BackendUnavailable,
    ModelError,
    OutputError,
    PrecisionDebugError,
    shorten,
    translate_errors,
)
from precision_debug.onnx.graph import iterate_external_tensors, read_external_location
from precision_debug.onnx.model import Model
from precision_debug.reasons import say

from ..settings import setting
from .own_options import configure
from .providers import CPU, RECORD, Shares, missing, saved_shares, shares_of
from .taps import library as taps_library

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Runtime", "our_errors", "plain", "raise_if_full"]


# A disk without room is told as such, whatever was being written: it is not the model's fault.

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SAID = (
    "No space left on device", "Failed to write external initializers", "Failed to save ORT format model",
    "Protobuf serialization failed",
)  # fmt: skip
"""ONNX Runtime's words where a file of its own cannot be written, in a folder that is ours."""


def raise_if_full(error: BaseException, folder: str) -> None:
    """Raise OutputError where an error, or what it came from, says that nothing more can be written.

    folder: that was written to.
    """
    at: BaseException | None = error
    while at is not None:
        if (isinstance(at, OSError) and at.errno in _FULL) or any(words in str(at) for words in _SAID):
            raise OutputError(say("no_room"), where=folder, hint=say("free_space")) from error
        at = at.__cause__ or at.__context__


_REFUSED = re.compile(r"invalid model|INVALID_GRAPH|Type Error|ShapeInferenceError|initializer_arg", re.IGNORECASE)
_OF_THE_MACHINE = re.compile(r"memory|alloc|thread|library|permission|no such file|too many open", re.IGNORECASE)
"""What fails for other reasons than the model."""
_INLINE_BYTES = "1024"
"""Bytes, as a session entry's text: smaller weights of a dumped graph stay in it. Scales and zero points are among
them, by which rows of a quantised graph are dequantised; large weights go to a file beside it."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How sessions of one run are opened.

    settings: the user's, see ``settings.SETTINGS``. cores: see SessionSpec. telling: ONNX Runtime logs what it does.
    """

    providers: tuple[str, ...] = (CPU,)
    provider_options: tuple[dict[str, str], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    cores: int = 0
    telling: bool = False

    def open(
        self, model: Model, *, optimise: str = "none", taps: bool = False, dump: Path | None = None,
        inline: bool = False,
    ) -> Any:  # fmt: skip
        """Return an InferenceSession.

        optimise: "none", "basic" or "all". dump: where to write the graph that it runs, ``.onnx`` or ``.ort``, with
        its weights inside (inline) or in a file beside it. Raises BackendUnavailable where the provider that was asked
        for does not start, or takes no node of the graph that runs.
        """
        import onnxruntime as ort

        levels = ort.GraphOptimizationLevel
        options = ort.SessionOptions()
        options.graph_optimization_level = {
            "none": levels.ORT_DISABLE_ALL, "basic": levels.ORT_ENABLE_BASIC, "all": levels.ORT_ENABLE_ALL,
        }[optimise]  # fmt: skip
        options.log_severity_level = 1 if self.telling else 2 if setting(self.settings, "verbose") else 4
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED if taps else ort.ExecutionOrder.DEFAULT
        options.intra_op_num_threads = setting(self.settings, "intra_op_num_threads") or self.cores
        entry = options.add_session_config_entry
        if any(iterate_external_tensors(model.proto.graph)):
            entry("session.model_external_initializers_file_folder_path", str(model.folder))
        if optimise == "none":
            # even then each reader of a DequantizeLinear would get a copy of it, taps too, which run out of order
            entry("session.disable_quant_qdq", "1")
        if taps:
            # between two nodes a hook compares, and another session may run: threads that spin would take its cores
            entry("session.intra_op.allow_spinning", "0")
        if self.asked != CPU:
            entry(RECORD, "1")
        if dump is not None:
            options.optimized_model_filepath = str(dump)
            entry("session.disable_prepacking", "1")  # it is not run
            options.intra_op_num_threads = 1
            if dump.suffix == ".onnx" and not inline:
                entry("session.optimized_model_external_initializers_file_name", f"{dump.name}.bin")
                entry("session.optimized_model_external_initializers_min_size_in_bytes", _INLINE_BYTES)
        configure(options, setting(self.settings, "config"), optimise=optimise)
        off = list(setting(self.settings, "disabled_optimizers")) if optimise != "none" else []
        with our_errors(model.path):
            for library in self._libraries(taps):
                options.register_custom_ops_library(library)
            providers: list[Any] = list(self.providers)
            if self.provider_options:
                providers = list(zip(self.providers, self.provider_options, strict=True))
        with our_errors(model.path, loading=self.asked == CPU), _loadable(model, ort.__version__) as source:
            session = ort.InferenceSession(source, options, providers=providers, disabled_optimizers=off or None)
        if self.asked != CPU:
            session.disable_fallback()  # it would go on without the provider when a run fails
            self._demand(session, model.path, of_nodes=optimise == "all" or taps)
        return session

    @property
    def asked(self) -> str:
        """The provider that is to run the model."""
        return self.providers[0]

    def _demand(self, session: Any, where: str, *, of_nodes: bool) -> None:
        """Refuse a session that goes on without the provider that was asked for. Raises BackendUnavailable."""
        if self.asked not in session.get_providers():
            what = missing(self.asked) or f"{self.asked} did not start with this model's settings"
            raise BackendUnavailable(what, where=where, hint="`precision_debug doctor` lists what runs here")
        found = shares_of(session) if of_nodes else None
        if found is not None:
            found.demand(self.asked, where)

    def shares(self, session: Any, model: Model) -> Shares | None:
        """Return who took which node of a model in an open session; None where this release of ONNX Runtime does not
        tell.

        Raises BackendUnavailable where the provider that was asked for took none.
        """
        found = shares_of(session)
        if found is None and self.asked != "TensorrtExecutionProvider":  # its nodes cannot be saved
            with tempfile.TemporaryDirectory(prefix="precision_debug-") as folder:
                path = Path(folder, "shares.ort")
                self.open(model, taps=True, dump=path)
                found = saved_shares(path.read_bytes())
            found.demand(self.asked, model.path)
        return found

    def _libraries(self, taps: bool) -> list[str]:
        libraries = list(setting(self.settings, "custom_ops_library"))
        if taps:
            libraries.append(taps_library())
        # a library that is registered twice is in conflict with itself
        return list(dict.fromkeys(str(Path(path).resolve()) for path in libraries))


@contextmanager
def _loadable(model: Model, version: str) -> Iterator[bytes | str]:
    """What ONNX Runtime loads: bytes; before 1.21 those cannot say where external weights lie, so a file among them."""
    data = _bytes(model)
    release = tuple(int(part) for part in version.split(".")[:2])
    locations = {read_external_location(tensor) for tensor in iterate_external_tensors(model.proto.graph)}
    if release >= (1, 21) or not locations:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="precision_debug-") as folder:
        for location in locations:
            link = Path(folder, location)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(model.folder.resolve() / location)
        path = Path(folder, f"{uuid.uuid4().hex}.onnx")
        path.write_bytes(data)
        yield str(path)


def _bytes(model: Model) -> bytes:
    try:
        return bytes(model.proto.SerializeToString())
    except ValueError as error:
        raise ModelError(
            "is over protobuf's 2 GB", where=model.path, hint="save it with external data (onnx.save_model)"
        ) from error


def our_errors(where: str, hint: str = "", *, loading: bool = False) -> AbstractContextManager[None]:
    """Turn whatever ONNX Runtime or onnx raises inside into one of our errors.

    loading: a model is loaded on the CPU, so that what fails there is what the file holds.
    """

    def ours(error: Exception) -> PrecisionDebugError:
        raise_if_full(error, where)
        return _translated(str(error) or type(error).__name__, where, hint, loading)

    return translate_errors(where, ours)


_CHECK = "correct its export; onnx.checker.check_model looks at the file without an engine"


def _translated(text: str, where: str, hint: str, loading: bool) -> PrecisionDebugError:
    text = plain(text)
    custom = re.search(r"(\S+?):(\w+)\((-?\d+)\) is not a registered function/op", text)
    if custom:
        domain, op = custom.group(1), custom.group(2)
        own = domain.startswith(("ai.onnx", "com.microsoft"))
        return ModelError(
            f"operator {op} of domain {domain} is unknown to ONNX Runtime",
            where=where,
            hint="update onnxruntime" if own else "give the library that has it as the option custom_ops_library",
        )
    opset = re.search(r"Opset (\d+) is under development", text)
    if opset:
        hint = "export it with an older opset, or update onnxruntime"
        return ModelError(f"opset {opset.group(1)} is newer than this onnxruntime knows", where=where, hint=hint)
    if re.search(r"No Op registered for (\w+) with domain_version", text):
        return ModelError(text, where=where, hint="export it with an opset that this onnxruntime knows")
    if "Unsupported model IR version" in text:
        return ModelError(text, where=where, hint="save it with an older ir_version, or update onnxruntime")
    if re.search(r"do not support type \[\d+\]", text):
        return ModelError(
            "ONNX Runtime's Python cannot load a model with an optional input or output", where=where,
            hint="export it with a plain tensor there, or two models, one with the input and one without",
        )  # fmt: skip
    kernel = re.search(r"Could not find an implementation for (\w+)\((\d+)\) node with name '([^']*)'", text)
    kernel = kernel or re.search(r"Failed to find kernel for (\w+)\((\d+)\) \(node:'([^']*)'", text)
    if kernel:
        op, version, node = kernel.groups()
        named = f" (node {node})" if node else ""
        what = f"ONNX Runtime has no kernel here for {op} of opset {version} with its types{named}"
        if op == "ConvInteger":  # in 1.20, of weights that are int8
            hint = "quantise to unsigned weights; in ort_int8_dynamic: --option weight_type=uint8"
        return ModelError(what, where=where, hint=hint or "another run mode may have one")
    if half := re.search(r"(?:MLFloat16|float16\S*) data type is not supported with (\w+)", text):
        hint = f"keep it in float32: op_block_list={half.group(1)}, of the mode ort_fp16 or of the converter"
        return ModelError(text, where=where, hint=hint)
    if _REFUSED.search(text) or (loading and not _OF_THE_MACHINE.search(text)):
        return ModelError(f"ONNX Runtime refuses the model: {text}", where=where, hint=hint or _CHECK)
    return BackendError(text, where=where, hint=hint)


def plain(text: str) -> str:
    """ONNX Runtime's words without its error code, and without where in its own source they come from."""
    text = " ".join(text.split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text).replace("Fatal error: ", "")
    text = re.sub(r"Load model from \S+ failed:\s*", "", text)
    place = re.search(r"/\S+\.(?:cc|h|cpp):\d+ ", text)
    if place:
        rest = _after_signature(text[place.end() :])
        text = f"{text[: place.start()]}{rest}".strip()
    return shorten(text)


def _after_signature(text: str) -> str:
    """Return what follows a C++ function's signature, which ends at the bracket that closes its arguments."""
    begin, depth = text.find("("), 0
    for place in range(max(begin, 0), len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return re.sub(r"^(::<lambda\([^)]*\)>| const| \[with [^\]]*\]|\s)+", "", text[place + 1 :])
    return text
