"""The text of EXPLAIN LOGICAL: the tree of nodes, with the columns that each emits and its time attribute."""

from __future__ import annotations

from collections import Counter

from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.tables import ResultSink

# A subtree with more lines than this is printed once, even if several nodes read it.
_LONG = 20


def logical_text(node: Node, *, schemas: bool = True) -> str:
    """Return a plan as an indented tree, the sink first; a time attribute has a `*` after it.

    A long subtree below several nodes is printed once, with a number in brackets. Without `schemas` columns are left out.
    """
    above = Counter(id(child) for n in walk(node) for child in n.children)
    several = {index for index, count in above.items() if count > 1}
    return "\n".join(_lines(node, 0, schemas, several, {}))


def _lines(node: Node, depth: int, schemas: bool, several: set[int], numbers: dict[int, int]) -> list[str]:
    pad = "  " * depth
    if id(node) in numbers:
        return [f"{pad}[{numbers[id(node)]}], as above"]
    lines = [f"{pad}{node.description}"]
    if schemas and not isinstance(node, ResultSink):
        time = node.time_attribute
        columns = ", ".join(f"{f}{' *' if f.name == time else ''}" for f in node.schema)
        lines.append(f"{pad}    -> {columns}{_changing(node)}")
    for child in node.children:
        lines += _lines(child, depth + 1, schemas, several, numbers)
    if id(node) in several and len(lines) > _LONG:
        numbers[id(node)] = len(numbers) + 1
        lines[0] += f" [{numbers[id(node)]}]"
    return lines


def _changing(node: Node) -> str:
    """Return the text that marks a changelog, with its unique key; empty for an append-only result."""
    if not node.is_changelog:
        return ""
    key = next(iter(node.unique_keys), None)
    return f" (changing{', key ' + ', '.join(sorted(key)) if key else ''})"
