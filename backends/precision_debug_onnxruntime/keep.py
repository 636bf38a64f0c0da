"""Which operators stay in float32: the options op_block_list and node_block_list, as the stock converter takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from precision_debug.errors import UsageError

from .engine.graph import Scope, all_graphs, subgraphs
from .engine.runtime import Runtime
from .model import Model
from .settings import setting

__all__ = ["Blocked"]


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Types and names of nodes. What is inside of a blocked If, Loop or Scan stays in float32 with it."""

    ops: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, runtime: Runtime, source: Model) -> Blocked:
        """Raises UsageError for a node that the model does not have."""
        nodes = frozenset(setting(runtime.settings, "node_block_list"))
        known = {node.name for graph in all_graphs(source.proto.graph) for node in graph.node} if nodes else set()
        for name in sorted(nodes - known):
            raise UsageError(f"the model has no node {name}", where="node_block_list")
        return cls(ops=frozenset(setting(runtime.settings, "op_block_list")), nodes=nodes)

    def covers(self, node: Any) -> bool:
        """Whether a node is named itself."""
        return node.op_type in self.ops or node.name in self.nodes

    def covers_scope(self, scope: Scope | None) -> bool:
        """Whether a graph lies in a blocked node, at whatever depth."""
        return scope is not None and (
            (scope.owner is not None and self.covers(scope.owner)) or self.covers_scope(scope.parent)
        )

    def nodes_of(self, graph: Any, inside: bool = False) -> Iterator[tuple[Any, bool]]:
        """Every node of a graph and of those inside it, and whether it stays in float32; inside: all of them do."""
        for node in graph.node:
            blocked = inside or self.covers(node)
            yield node, blocked
            for _, inner in subgraphs(node):
                yield from self.nodes_of(inner, blocked)
