"""Plans as text: what each node does, the columns it emits, its time attribute, the state it keeps."""

from __future__ import annotations

from collections import Counter

from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.tables import ResultSink

# A part of a plan with more lines than this is printed once.
_LONG = 20


def logical_text(node: Node, *, schemas: bool = True) -> str:
    """Return a plan as an indented tree, the sink first. What is long, and below several nodes, is told once."""
    above = Counter(id(child) for n in walk(node) for child in n.children)
    several = {place for place, count in above.items() if count > 1}
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
    """Return what a changelog adds to a line: by which upsert key its rows are told apart."""
    if not node.is_changelog:
        return ""
    found = next(iter(node.unique_keys), None)
    return f" (changing{', key ' + ', '.join(sorted(found)) if found else ''})"
