"""Which tensor of the source model each value of the running graph holds.

Three graphs: the *source* model, the one *given* to ONNX Runtime (converted or quantised, else the source itself) and
the one that *runs* after its fusions. A name that survives says it; else the edge it lies on (``same_tensor``); else
the node that computed it, whose name the fusions keep.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from precision_debug.numbers.number_types import BEFORE_ROUNDING
from precision_debug.onnx.graph import Scope, iterate_scopes
from precision_debug.reasons.ways import NO_WAY, Way, way

from .engine.same_tensor import NCHWC, Edge, Form, find_edges, is_carrier
from .engine.source_tensors import Known, spellings
from .engine.types import Types

__all__ = ["Holding", "find_holdings"]

_TOKEN = re.compile(r"_token_\d+$")
_DROPPED = {"Relu", "Clip", "Identity"}

_Item = tuple[str, Form, Edge]
_Seen = dict[str, tuple[str, ...] | None]
"""The source tensors that each value met so far stands for, or the converted graph's own that stands between two of
them; None for constants."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What a value of the running graph holds.

    origin: the source tensor; "" where none could be told. form: how. root: the value of its edge that an operator
    computed. same_as: another value of the running graph that holds the same numbers and stands for the source
    tensor. before: what the numbers have yet to go through. repeats: a value outside of the loop or branch that this
    one only repeats there. constant: it is a constant of the model in another form.
    """

    origin: str = ""
    form: Form
    root: str = ""
    same_as: str = ""
    before: Way = NO_WAY
    repeats: str = ""
    constant: bool = False


def find_holdings(running: Any, types: Types, known: Known) -> dict[tuple[Any, str], Holding]:
    """Return what every value of the running graph holds, by (scope key, name)."""
    found: dict[tuple[Any, str], Holding] = {}
    outputs = frozenset(item.name for item in running.output)
    seen: _Seen = {}
    for scope in iterate_scopes(running):
        groups: dict[tuple[str, ...], list[Edge]] = {}
        for edge in find_edges(scope, scope.graph.node, types, known.source.nodes, known):
            members = tuple(_find_members(edge, known, seen))
            read_as = members or _put_in(edge, known, seen)
            seen.update(dict.fromkeys(edge.forms, None if edge.constant else read_as))
            repeated = _find_repeated(edge, members, scope, known)
            if repeated:
                for name, form in edge.forms.items():
                    local = name in known.source.tensors and not _is_outside(name, scope, known)
                    found[scope.key, name] = Holding(
                        origin=name if local else "", form=form, root=edge.root, repeats="" if local else repeated
                    )
            elif edge.constant or not members:
                for name, form in edge.forms.items():
                    constant = edge.constant and name not in known.source.tensors
                    found[scope.key, name] = Holding(form=form, root=edge.root, constant=constant)
            else:
                groups.setdefault(members, []).append(edge)
        for members, edges in groups.items():
            everything = [(name, form, edge) for edge in edges for name, form in edge.forms.items()]
            assign = _assign_one if len(members) == 1 else _assign_several
            for name, holding in assign(members, everything, known, outputs):
                found[scope.key, name] = holding
    return found


def _find_repeated(edge: Edge, members: tuple[str, ...], scope: Scope, known: Known) -> str:
    """Return the value that an edge inside a branch or loop only takes over from outside; "" where it is of its own."""
    outside = next((name for name in members if _is_outside(name, scope, known)), "")
    if outside or not scope.key:
        return outside
    if edge.root in {item.name for item in scope.graph.input}:
        return edge.root
    taken = edge.node is not None and is_carrier(edge.node, known.source.nodes) and not members
    return str(edge.node.input[0]) if taken else ""


def _is_outside(name: str, scope: Scope, known: Known) -> bool:
    """Return whether a source tensor is computed further out than this graph, or in fewer loops."""
    depth, loops = known.source.tensors[name]
    return depth < len(scope.key) or loops < scope.loop_depth


def _find_members(edge: Edge, known: Known, seen: _Seen) -> list[str]:
    """Return the source tensors that an edge of the running graph stands for, each once."""
    found: dict[str, None] = {}
    for name in edge.forms:
        if known.copied(name) and (found or known.copied(name) in seen):
            continue  # the tensor itself is there
        for plain in [name] if known.after(name) else spellings(name):
            members = known.members(plain) or _find_moved(plain, name, known)
            members = members or _find_named_after(plain, edge.forms[name], edge, known, seen)
            if members:
                found.update(dict.fromkeys(members))
                break
    if found or edge.node is None:
        return list(
            dict.fromkeys([*found, *(later for member in found for later in _find_taken_over(member, edge, known))])
        )
    return (
        _find_blocked_members(edge, known, seen) if edge.node.domain == NCHWC else _find_node_members(edge, known, seen)
    )


def _find_moved(plain: str, name: str, known: Known) -> list[str]:
    """Return the tensor of the node that a value in a known layout is called after."""
    tensor = known.named_after(plain) if known.turned.get(name) is not None else ""
    return [tensor] if tensor else []


def _find_named_after(name: str, form: Form, edge: Edge, known: Known, seen: _Seen) -> list[str]:
    """Return what a value holds that is called after a node: as ONNX Runtime calls what it transposed, in a layout that
    is known. Its scale must be the tensor's own, or its operator the node's, of the same inputs: what was fused since
    bears the name, too."""
    tensor = known.after(name)
    if not tensor or not form.perm or edge.node is None:
        return []
    if form.scale is not None:
        return known.members(tensor) if form.scale.code in known.scale_codes(tensor) else []
    maker = known.converted.producer[tensor]
    alike = name != edge.root or (maker.op_type == edge.node.op_type and _reads_the_same(edge.node, maker, known, seen))
    return known.members(tensor) if alike else []


def _find_taken_over(member: str, edge: Edge, known: Known) -> list[str]:
    """Return what an operator makes of a tensor that went as the quantisation stands in for it: a Relu, say, where the
    edge is quantised with the scale of the Relu's result."""
    codes = {form.scale.code for form in edge.forms.values() if form.scale is not None} - known.scale_codes(member)
    found = []
    for node in known.converted.consumers.get(member, ()) if codes else ():
        gone = node.op_type in _DROPPED and node.input[0] == member and len(node.output) == 1
        if gone and codes & known.scale_codes(node.output[0]):
            found += known.members(node.output[0])
    return found


def _find_node_members(edge: Edge, known: Known, seen: _Seen) -> list[str]:
    """For a quantised or blocked value by the name of the node, which the fusions keep, unless its scale is another's.

    Another value has lost its name because its layout was changed: nothing is known of it then.
    """
    own = {form.scale.code for form in edge.forms.values() if form.scale is not None}
    if not own and not any(form.blocked for form in edge.forms.values()):
        return []
    outputs = known.outputs(edge.node)
    if not outputs:
        return _find_fused_members(edge, known, seen)
    if edge.index >= len(outputs) or not outputs[edge.index]:
        return []
    tensor = _find_first_quantised(outputs[edge.index], known) if own else outputs[edge.index]
    members = known.members(tensor)
    theirs = known.scale_codes(tensor)
    if own and theirs and not own & theirs and not _is_shared_constant(own):
        return []
    return members if _reads_the_same(edge.node, known.converted.producer[outputs[edge.index]], known, seen) else []


def _put_in(edge: Edge, known: Known, seen: _Seen) -> tuple[str, ...]:
    """Return the converted graph's own tensor that an edge is, of which the source knows nothing: a quantiser that lets
    ONNX Runtime prepare the model puts Reshapes around a product of two dimensions, and quantises between them."""
    outputs = known.outputs(edge.node) if edge.node is not None and not edge.constant else ()
    tensor = outputs[edge.index] if edge.index < len(outputs) else ""
    there = known.edge_of.get(tensor)
    if there is None or known.members(tensor):
        return ()
    own = {form.scale.code for form in edge.forms.values() if form.scale is not None}
    theirs = known.scale_codes(tensor)
    if own and theirs and not own & theirs and not _is_shared_constant(own):
        return ()
    return (there.root,) if _reads_the_same(edge.node, known.converted.producer[tensor], known, seen) else ()


def _find_first_quantised(tensor: str, known: Known) -> str:
    """Return the tensor that is quantised behind one that is not: what is dropped between them, a Relu say, the
    quantisation does."""
    while not known.scale_codes(tensor):
        readers = known.converted.consumers.get(tensor, ())
        if len(readers) != 1 or readers[0].op_type not in _DROPPED or readers[0].input[0] != tensor:
            break
        tensor = readers[0].output[0]
    return tensor


def _is_shared_constant(codes: Collection[str]) -> bool:
    """Return whether ONNX Runtime has put one constant in the place of several that are equal: its name tells nothing
    then."""
    return any("ortshared" in code for code in codes)


def _find_fused_members(edge: Edge, known: Known, seen: _Seen) -> list[str]:
    """For what a fusion made: the output of the last node that went into it, if it is a function of the same inputs."""
    outputs = known.fused_outputs(edge.node)
    if edge.index >= len(outputs):
        return []
    read = [seen.get(name, ()) for name in edge.node.input if name and seen.get(name, ()) is not None]
    if not all(read):
        return []
    inputs = {member for members in read for member in members or ()}
    inside = known.between(inputs, outputs[edge.index])
    own = {form.scale.code for form in edge.forms.values() if form.scale is not None}
    theirs = known.scale_codes(outputs[edge.index])
    return [] if inside is None or (own and theirs and not own & theirs) else known.members(outputs[edge.index])


def _reads_the_same(running: Any, converted: Any, known: Known, seen: _Seen) -> bool:
    """Return whether two nodes of one name read the same tensors; else a transposition was moved past the node."""
    mine = [seen[name] for name in running.input if seen.get(name) is not None]
    edges = [known.edge_of.get(name) for name in converted.input if name]
    theirs = [known.members(edge.root) or [edge.root] for edge in edges if edge is not None and not edge.constant]
    return len(mine) == len(theirs) and all(set(one or ()) & set(two) for one, two in zip(mine, theirs, strict=True))


def _find_blocked_members(edge: Edge, known: Known, seen: _Seen) -> list[str]:
    """A blocked node is called after its first output's name; what was fused into it later moved that on.

    A fourth input is a sum that was fused in, an activation is one unless it had been fused before the name was given.
    """
    name = _TOKEN.sub("", edge.node.name)
    if not name.endswith("_nchwc"):
        return _find_node_members(edge, known, seen)
    name = name.removesuffix("_nchwc")
    texts = (name, name.removesuffix("_bn"))
    tensor = next((plain for text in texts for plain in spellings(text) if known.members(plain)), "")
    if tensor and edge.node.op_type == "Conv":
        if len(edge.node.input) > 3 and edge.node.input[3]:
            tensor = _find_only_consumer(tensor, {"Add", "Sum"}, known)
        activation = next((item.s.decode() for item in edge.node.attribute if item.name == "activation"), "")
        maker = known.converted.producer.get(tensor)
        if activation and maker is not None and maker.op_type != activation:
            tensor = _find_only_consumer(tensor, {activation}, known)
    return known.members(tensor) if tensor else []


def _find_only_consumer(tensor: str, op_types: set[str], known: Known) -> str:
    """Return the output of the one consumer of such a type; "" where there is not exactly one."""
    edge = known.edge_of.get(tensor)
    names = list(edge.forms) if edge is not None else [tensor]
    readers = (node for name in names for node in known.converted.consumers.get(name, ()))
    next_nodes = [node for node in readers if node.op_type in op_types]
    return next_nodes[0].output[0] if len(next_nodes) == 1 else ""


def _assign_one(
    members: tuple[str, ...], everything: list[_Item], known: Known, outputs: frozenset[str]
) -> Iterator[tuple[str, Holding]]:
    """One source tensor: the most rounded form stands for it, others repeat that one or are what it was before."""
    source = members[0]
    places = {name: place for place, (name, _, _) in enumerate(everything)}

    def rank(item: _Item) -> tuple[Any, ...]:
        return _preference_key(item[0], item[1], source, outputs, places[item[0]])

    chosen = min(everything, key=rank)
    alike: dict[tuple[int, str], list[_Item]] = {}
    for item in everything:
        alike.setdefault(_level_of_form(item[1]), []).append(item)
    for found in alike.values():
        first = chosen if chosen in found else min(found, key=rank)
        for name, form, edge in found:
            if name == chosen[0]:
                yield name, Holding(origin=source, form=form, root=edge.root)
            elif name != first[0]:
                yield name, Holding(form=form, root=edge.root, same_as=first[0])
            elif form.bits <= chosen[1].bits:
                yield name, Holding(form=form, root=edge.root)
            else:
                own = _find_own_output(edge, source, known) if edge.root in {item[0] for item in found} else ""
                other = own if own and own != source and own not in places else ""
                how = way("before quantisation") if chosen[1].code else BEFORE_ROUNDING
                yield name, Holding(origin=other, form=form, root=edge.root, before=NO_WAY if other else how)


def _find_own_output(edge: Edge, source: str, known: Known) -> str:
    """Return what an operator computed whose output now bears the name of a later one that was dropped: a Relu, say,
    which the zero point of the quantisation stands in for."""
    maker = known.source.producer.get(source)
    if edge.node is None or maker is None or maker.op_type not in _DROPPED or maker.name in known.converted.nodes:
        return ""
    return str(maker.input[0]) if maker.input[0] in known.source.tensors else ""


def _preference_key(name: str, form: Form, source: str, outputs: frozenset[str], place: int) -> tuple[Any, ...]:
    """Return the smallest first: the model's output itself, else the most rounded form, plain before quantised or
    blocked."""
    return (
        not (name == source and name in outputs),
        form.bits,
        form.blocked,
        form.scale is not None,
        name != source,
        -form.width,
        place,
    )


def _assign_several(
    members: tuple[str, ...], everything: list[_Item], known: Known, outputs: frozenset[str]
) -> Iterator[tuple[str, Holding]]:
    """Several source tensors on one edge: its own carriers, or an operator between them that went.

    Each stands for those values that the given graph had on its edge or that have its name. Another value repeats one
    of these, or stands for a tensor that has none.
    """
    groups: dict[str, list[_Item]] = {}
    for item in everything:
        groups.setdefault(_stands_for(item[0], item[1], members, known), []).append(item)
    unknown = groups.pop("", [])
    left = [source for source in members if source not in groups]
    done: list[tuple[str, Holding]] = []
    for source, found in groups.items():
        done += _assign_one((source,), found, known, outputs)
    done = [(name, _holding_of_dequantised(name, held, left, known)) for name, held in done]
    yield from done
    for name, form, edge in unknown:
        alike = (other for other, held in done if held.origin and _level_of_form(held.form) == _level_of_form(form))
        same = next(alike, "")
        if same:
            yield name, Holding(form=form, root=edge.root, same_as=same)
            continue
        source = next((item for item in reversed(left) if known.quantised(item) == bool(form.code)), "")
        if source:
            left.remove(source)
        yield name, Holding(origin=source, form=form, root=edge.root)


def _holding_of_dequantised(name: str, held: Holding, left: list[str], known: Known) -> Holding:
    """Integers that are all that is left of what they are dequantised to stand for that: the float model that the file
    was made of knows them under that name alone."""
    if held.origin != name or held.form.scale is None:
        return held
    same = {known.edge_of[one].root for one in (name,) if one in known.edge_of}
    gone = [one for one in left if known.edge_of[one].root in same and known.quantised(one)] if same else []
    return dataclasses.replace(held, origin=gone[-1]) if gone else held


def _stands_for(name: str, form: Form, members: tuple[str, ...], known: Known) -> str:
    if form.perm and known.after(name) in members:
        return known.after(name)
    for plain in spellings(name):
        if plain in members:
            return plain
        on_edge = known.members(plain)
        if len(on_edge) == 1:
            return on_edge[0]
    own = [one for one in members if form.scale is not None and form.scale.code in known.scale_codes(one)]
    maker = known.converted.producer.get(own[0]) if len(own) == 1 else None
    return own[0] if maker is not None and maker.op_type in _DROPPED else ""


def _level_of_form(form: Form) -> tuple[int, str]:
    return form.bits, form.code
