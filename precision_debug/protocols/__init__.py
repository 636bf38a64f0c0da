"""Protocols that a backend implements; one elsewhere needs these, ``records``, ``settings`` and ``errors``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import make_lazy_exports

__all__ = [
    "ABSENT",
    "BETWEEN",
    "TF32_OFF",
    "WHOLE",
    "Absent",
    "Agreeing",
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
    "CudaComparison",
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
    "OtherWeight",
    "Pairer",
    "Place",
    "PrecisionReader",
    "ProgressReader",
    "PutsKnown",
    "Refused",
    "Remedies",
    "Remedy",
    "Replace",
    "Replacer",
    "Roads",
    "Rung",
    "Session",
    "Started",
    "StoredWeights",
    "Survey",
    "Surveyor",
    "Switch",
    "Tensor",
    "TorchComparison",
    "Watcher",
    "Watching",
    "WeightKeeper",
    "Workbench",
    "demand",
    "is_line",
    "is_switch",
    "keeps_own",
    "progress_to",
    "tell",
    "without",
]

if TYPE_CHECKING:
    from .capabilities import (
        AloneFiles,
        AloneScripter,
        Backend,
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
        demand,
    )
    from .configuring import (
        ABSENT,
        Absent,
        Configurations,
        Configurer,
        FolderConfigurations,
        OtherWeight,
        Place,
        StoredWeights,
    )  # fmt: skip
    from .description import DescribedLayer, DescribedWeight, Describer, Description, Refused, Survey, Surveyor
    from .keeping import (
        BETWEEN,
        TF32_OFF,
        WHOLE,
        Agreeing,
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
    from .session import (
        Executed,
        OneRun,
        PrecisionReader,
        ProgressReader,
        PutsKnown,
        Replace,
        Replacer,
        Session,
        keeps_own,
        progress_to,
        tell,
    )
    from .tensors import (
        BaselineStore,
        Borrower,
        Comparer,
        CudaComparison,
        Feeds,
        Hook,
        Started,
        Tensor,
        TorchComparison,
        Workbench,
    )  # fmt: skip

__getattr__ = make_lazy_exports(
    __name__,
    {
        "capabilities": (
            "AloneFiles AloneScripter Backend BaselineChooser Capabilities Exporter Follower Ladder Layer "
            "LayerKeeper Matches Namesake OnDevice OnDeviceAlone Operator OperatorRunner Operators Pairer "
            "Roads Rung Switch Watcher Watching WeightKeeper demand"
        ),
        "configuring": "ABSENT Absent Configurations Configurer FolderConfigurations OtherWeight Place StoredWeights",
        "description": "DescribedLayer DescribedWeight Describer Description Refused Survey Surveyor",
        "keeping": (
            "Agreeing BETWEEN Handed InRegions Keep Keeper Remedies Remedy TF32_OFF WHOLE is_line "
            "is_switch without"
        ),
        "session": (
            "Executed OneRun PrecisionReader ProgressReader PutsKnown Replace Replacer Session keeps_own "
            "progress_to tell"
        ),
        "tensors": "BaselineStore Borrower Comparer CudaComparison Feeds Hook Started Tensor TorchComparison Workbench",
    },
)
