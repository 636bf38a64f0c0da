"""Reads a model folder's config.json, and what a model wants to be fed with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.records import InputMeta

__all__ = ["Folder", "read_inputs", "read_model"]

_HINT = "give the folder that save_pretrained wrote: --model_dir FOLDER"


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A language model as transformers saves it. config: its config.json; a model of several kinds of input has its
    language part's there under "text_config"."""

    path: str
    config: Mapping[str, Any]

    @property
    def vocabulary(self) -> int:
        return int(self.config["vocab_size"])

    @property
    def unties(self) -> bool:
        """Whether config.json ties the head to the embedding, and the weights bring a head of their own: then vLLM
        multiplies with that one (its ModelConfig.maybe_untie_word_embeddings), as if nothing were tied."""
        return bool(self.config.get("tie_word_embeddings")) and any(
            "lm_head.weight" in _names(file) for file in Path(self.path).glob("*.safetensors")
        )


def _names(file: Path) -> Mapping[str, Any]:
    """Return the head of a file of weights, {} where it cannot be read; vLLM says what is wrong with it."""
    try:
        with file.open("rb") as opened:
            head = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    except (OSError, ValueError, OverflowError, MemoryError, RecursionError):
        return {}
    return head if isinstance(head, dict) else {}


def read_model(path: str) -> Folder:
    """Raises ModelError."""
    try:
        whole = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
        config = whole.get("text_config", whole)
        if not isinstance(config, dict) or not isinstance(config.get("vocab_size"), int):
            raise ModelError("its config.json is of no language model", where=path, hint=_HINT)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise ModelError(f"it is no model folder ({what})", where=path, hint=_HINT) from error
    return Folder(path=path, config=config)


def read_inputs(folder: Folder) -> Sequence[InputMeta]:
    """Return rows of token ids, and a mask that may be given where it leaves nothing out."""
    shape = ("rows", "tokens")
    return (
        InputMeta(name="input_ids", dtype="int64", shape=shape, limit=folder.vocabulary),
        InputMeta(name="attention_mask", dtype="int64", shape=shape, optional=True, limit=2),
    )
