"""Protocols that a backend implements; one elsewhere needs these, ``records``, ``settings`` and ``errors``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import offered

__all__ = [
    "ABSENT",
    "BETWEEN",
    "TF32_OFF",
    "WHOLE",
    "Absent",
    "Agreeing",
    "Agreement",
    "AloneFiles",
    "AloneScripter",
    "Backend",
    "BaselineChooser",
    "BaselineStore",
    "Borrower",
    "Capabilities",
    "Comparer",
    "Configurations",
    "Configurer",
    "DescribedLayer",
    "DescribedWeight",
    "Describer",
    "Description",
    "Executed",
    "Exporter",
    "Feeds",
    "FolderConfigurations",
    "Follower",
    "Handed",
    "Hook",
    "InRegions",
    "Keep",
    "Keeper",
    "Ladder",
    "Layer",
    "LayerKeeper",
    "Matches",
    "Namesake",
    "OnDevice",
    "OnDeviceAlone",
    "OneRun",
    "Operator",
    "OperatorRunner",
    "Operators",
    "Pairer",
    "Place",
    "PrecisionReader",
    "ProgressReader",
    "Refused",
    "Remedies",
    "Remedy",
    "Replace",
    "Replacer",
    "Roads",
    "Rung",
    "Session",
    "Survey",
    "Surveyor",
    "Switch",
    "Tensor",
    "Watcher",
    "Watching",
    "WeightKeeper",
    "Workbench",
    "demand",
    "is_line",
    "is_switch",
    "progress_to",
    "tell",
    "without",
]

if TYPE_CHECKING:
    from .agreeing import Agreeing, Agreement
    from .backend import Backend, demand
    from .capabilities import (
        AloneFiles,
        AloneScripter,
        BaselineChooser,
        Capabilities,
        Exporter,
        Follower,
        Ladder,
        Layer,
        LayerKeeper,
        Matches,
        Namesake,
        OnDevice,
        OnDeviceAlone,
        Operator,
        OperatorRunner,
        Operators,
        Pairer,
        Roads,
        Rung,
        Switch,
        Watcher,
        Watching,
        WeightKeeper,
    )
    from .configuring import ABSENT, Absent, Configurations, Configurer, FolderConfigurations, Place
    from .description import DescribedLayer, DescribedWeight, Describer, Description
    from .executed import Executed, PrecisionReader
    from .keeping import (
        BETWEEN,
        TF32_OFF,
        WHOLE,
        Handed,
        InRegions,
        Keep,
        Keeper,
        Remedies,
        Remedy,
        is_line,
        is_switch,
        without,
    )
    from .progress import ProgressReader, progress_to, tell
    from .running import OneRun
    from .session import Replace, Replacer, Session
    from .survey import Refused, Survey, Surveyor
    from .tensors import BaselineStore, Borrower, Comparer, Feeds, Hook, Tensor
    from .workbench import Workbench

__getattr__ = offered(
    __name__,
    {
        "agreeing": "Agreeing Agreement",
        "backend": "Backend demand",
        "capabilities": "AloneFiles AloneScripter BaselineChooser Capabilities Exporter Follower Ladder Layer "
        "LayerKeeper Matches Namesake OnDevice OnDeviceAlone Operator OperatorRunner Operators Pairer Roads Rung "
        "Switch Watcher Watching WeightKeeper",
        "configuring": "ABSENT Absent Configurations Configurer FolderConfigurations Place",
        "description": "DescribedLayer DescribedWeight Describer Description",
        "executed": "Executed PrecisionReader",
        "keeping": "BETWEEN TF32_OFF WHOLE Handed InRegions Keep Keeper Remedies Remedy is_line is_switch without",
        "running": "OneRun",
        "session": "Replace Replacer Session",
        "survey": "Refused Survey Surveyor",
        "progress": "ProgressReader progress_to tell",
        "tensors": "BaselineStore Borrower Comparer Feeds Hook Tensor",
        "workbench": "Workbench",
    },
)
