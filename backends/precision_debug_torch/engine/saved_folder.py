"""A model folder as the transformers library saves one: config.json, which names the class, and safetensors."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch

from precision_debug.errors import BackendUnavailable, ModelError
from precision_debug.safety.untrusted import refuse_special

from ..reasons import say
from .quantised_folder import Packed, config_of, is_pickled_by_torchao, read_packed, unpack_state

__all__ = ["list_left_unpacked", "load_folder", "packed_folder"]

_FACTORY = "write a factory FILE.py:FUNCTION that builds the module and loads them"


def load_folder(path: str, dtype: Any = torch.float32) -> Any:
    """Return the module in a type, as ``from_pretrained`` loads it, in evaluation mode; of a class that transformers
    has.

    Nothing is fetched, no code that lies in the folder is run, and weights are read from safetensors alone.
    Raises ModelError, and BackendUnavailable without transformers.
    """
    named = _class_named(Path(path))
    kind = _find_class(named, path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = _load_module(kind, path, dtype)
    except ModelError:
        raise
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"cannot be loaded by {named}: {text}", where=path, hint=_FACTORY) from error
    return module.eval()


def _find_class(named: str, path: str) -> Any:
    """Return the class of transformers that a folder names. Raises ModelError, and BackendUnavailable without it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers
    except Exception as error:
        hint = "pip install transformers, or " + _FACTORY
        what = f"needs transformers ({type(error).__name__}: {error})"
        raise BackendUnavailable(what, where=path, hint=hint) from error
    kind: Any = getattr(transformers, named, None)
    is_model = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
    if not is_model:
        raise ModelError(f"this transformers has no model {named}", where=path, hint=_FACTORY)
    return kind


def packed_folder(path: str) -> Packed | None:
    """Return what a folder says of its quantisation; None where it has none. Raises ModelError."""
    return read_packed(config_of(Path(path)), Path(path))


def list_left_unpacked(path: str) -> tuple[str, ...]:
    """Return the paths of the linear layers that a quantised folder holds as they were, in the model's order.

    A quantiser that is given a list of what to leave alone may leave nothing else, so that they belong into the list
    (transformers' own then leaves `lm_head` no longer). Raises ModelError."""
    packed, named = packed_folder(path), _class_named(Path(path))
    if packed is None:
        return ()
    kind = _find_class(named, path)
    from transformers.pytorch_utils import Conv1D  # a linear layer too, as GPT-2 has it

    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            module = kind(_plain_config(kind, path))
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"cannot be built by {named}: {text}", where=path, hint=_FACTORY) from error
    linear = (torch.nn.Linear, Conv1D)
    return tuple(
        name for name, one in module.named_modules() if isinstance(one, linear) and name not in packed.modules
    )


def _typed(dtype: Any) -> dict[str, Any]:
    """Return the argument for a model's type, as this release of transformers calls it: it warns of the other word."""
    import transformers

    numbers = [int(part) for part in transformers.__version__.split(".")[:2]]
    return {"dtype" if numbers >= [4, 56] else "torch_dtype": dtype}


def _load_module(kind: Any, path: str, dtype: Any) -> Any:
    """Return the module, packed weights as the numbers that they stand for."""
    packed = packed_folder(path)
    if packed is None:
        module, told = kind.from_pretrained(
            path, **_typed(dtype), local_files_only=True, use_safetensors=True, output_loading_info=True
        )
        if told["missing_keys"]:  # they are drawn at random
            raise ModelError(f"lacks the model's {sorted(told['missing_keys'])[0]}", where=path, hint=_FACTORY)
        return module
    config = _plain_config(kind, path)
    state = unpack_state(config_of(Path(path)), packed, Path(path))
    module, told = kind.from_pretrained(
        None, config=config, state_dict=state, **_typed(dtype), output_loading_info=True
    )
    if told["missing_keys"]:  # they would be drawn at random
        what = f"its packed weights have other names than the model's, which lacks {sorted(told['missing_keys'])[0]}"
        raise ModelError(what, where=path, hint=_FACTORY)
    return module


def _plain_config(kind: Any, path: str) -> Any:
    """Return a folder's configuration without what its quantiser wrote into it."""
    config = kind.config_class.from_pretrained(path, local_files_only=True)
    for key in ("quantization_config", "compression_config"):
        if hasattr(config, key):
            delattr(config, key)
    return config


def _class_named(folder: Path) -> str:
    """Return the class that config.json names; its weights are there, in a form that no code can hide in."""
    file = folder / "config.json"
    for one in (file, *folder.glob("*.safetensors"), *folder.glob("*.json"), *folder.glob("pytorch_model*.bin")):
        refuse_special(one, ModelError)
    if not file.is_file():
        raise ModelError(
            say("no_config"), where=str(folder), hint=say("reads_folders"),
        )  # fmt: skip
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        names = config["architectures"]
        named = names[0]
    except (OSError, ValueError, RecursionError, LookupError, TypeError) as error:
        raise ModelError("names no class under 'architectures'", where=str(file), hint=_FACTORY) from error
    if not isinstance(named, str):
        raise ModelError("names no class under 'architectures'", where=str(file), hint=_FACTORY)
    _refuse_what_fetches(folder, config)
    if not any(folder.glob("*.safetensors")) and not is_pickled_by_torchao(config, folder):
        raise ModelError(
            "holds no safetensors; other files of weights are Python objects, which are not read: reading them would "
            "run code", where=str(folder), hint="save it again with save_pretrained, or " + _FACTORY,
        )  # fmt: skip
    return named


def _refuse_what_fetches(folder: Path, config: Any) -> None:
    """Attention, experts and quantisers can be named as kernels that transformers fetches and runs; an adapter names
    another model that is loaded in place of this one. Raises ModelError.
    """
    if (folder / "adapter_config.json").exists():
        raise ModelError("holds an adapter, which names another model", where=str(folder), hint="merge it first")
    left = [config]
    while left:
        part = left.pop()
        if not isinstance(part, dict):
            left += part if isinstance(part, list) else ()
            continue
        for key, value in part.items():
            if key == "quantization_config" and value and part is not config:  # the whole folder's is unpacked here
                raise ModelError("is quantised in a part of it", where=str(folder), hint=_FACTORY)
            if "implementation" in key and "/" in str(value):
                what = f"asks for a kernel from elsewhere ({key}), which is code"
                raise ModelError(what, where=str(folder / "config.json"), hint=f"take the line out, or {_FACTORY}")
            left.append(value)
