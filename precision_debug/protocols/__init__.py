"""What the stages ask of each other. A backend elsewhere needs these, ``records``, ``settings``, ``errors``."""

from __future__ import annotations

from .backend import Backend
from .capabilities import (
    Capabilities,
    Exporter,
    Ladder,
    Layer,
    LayerKeeper,
    Matches,
    OnDevice,
    OnDeviceAlone,
    Operator,
    OperatorRunner,
    Operators,
    Pairer,
    Rung,
    Switch,
    Watcher,
    WeightKeeper,
)
from .description import DescribedLayer, DescribedWeight, Describer, Description
from .keeping import Handed, Keep, Keeper
from .session import Replace, Replacer, Session
from .survey import Refused, Survey, Surveyor
from .telling import Teller, tell, told_to
from .tensors import BaselineStore, Borrower, Comparer, Feeds, Hook, Tensor
from .workbench import Workbench

__all__ = [
    "Backend",
    "BaselineStore",
    "Borrower",
    "Capabilities",
    "Comparer",
    "DescribedLayer",
    "DescribedWeight",
    "Describer",
    "Description",
    "Exporter",
    "Feeds",
    "Handed",
    "Hook",
    "Keep",
    "Keeper",
    "Ladder",
    "Layer",
    "LayerKeeper",
    "Matches",
    "OnDevice",
    "OnDeviceAlone",
    "Operator",
    "OperatorRunner",
    "Operators",
    "Pairer",
    "Refused",
    "Replace",
    "Replacer",
    "Rung",
    "Session",
    "Survey",
    "Surveyor",
    "Switch",
    "Teller",
    "Tensor",
    "Watcher",
    "WeightKeeper",
    "Workbench",
    "tell",
    "told_to",
]
