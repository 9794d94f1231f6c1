"""The positions of syntax tree nodes in the text.

The parser marks nodes with the first and last character that they were read from (`start` and `end` in `meta`, both inclusive, as
sqlglot marks its tokens). A node's span is the smallest one that covers its marks and the marks of all nodes below it.
"""

from __future__ import annotations

from sqlglot import exp

from sqlstream.errors import SourceText, Span


def span_of(node: exp.Expr, source: SourceText, default: Span | None = None) -> Span:
    """Return the position of a node; `default`, or the start of the source, if neither it nor a node below has marks."""
    spans = [span for descendant in node.walk() if (span := own_span(descendant))]
    if not spans:
        return default or Span(source, 0, 0)
    return Span(source, min(start for start, _ in spans), max(end for _, end in spans) + 1)


def operator_span(node: exp.Expr, source: SourceText) -> Span:
    """Return the position of UNION, INTERSECT or EXCEPT between two queries; the whole node's if it is unknown."""
    assert isinstance(node, exp.SetOperation)
    start, end = span_of(node.this, source).end, span_of(node.expression, source).start
    between = source.text[start:end]
    word = between.strip(" \t\r\n()")
    if not word:
        return span_of(node, source)
    start += between.index(word)
    return Span(source, start, start + len(word))


def head_span(node: exp.Expr, below: exp.Expr | None, source: SourceText) -> Span:
    """Return the position of a node up to the end of its part `below`, such as `LEFT JOIN t`; the whole node without it."""
    whole = span_of(node, source)
    return Span(source, whole.start, span_of(below, source, whole).end) if below is not None else whole


def name_span(call: exp.Anonymous, source: SourceText) -> Span:
    """Return the position of a function's name, without its arguments."""
    if isinstance(call.this, exp.Expr):
        return span_of(call.this, source)
    start = span_of(call, source).start
    return Span(source, start, start + len(call.name))


def add_span(node: exp.Expr, start: int, end: int) -> None:
    """Widen the marks of a node to cover the characters start..end (inclusive)."""
    if span := own_span(node):
        start, end = min(start, span[0]), max(end, span[1])
    node.meta["start"], node.meta["end"] = start, end


def with_span_of(node: exp.Expr, old: exp.Expr, span: Span) -> exp.Expr:
    """Return a node with the marks of `old`, which it replaces, widened to `span`, as `old` may have marks on leaves only."""
    node.meta.update(old.meta)
    if span.start < span.end:
        add_span(node, span.start, span.end - 1)
    return node


def own_span(node: exp.Expr) -> tuple[int, int] | None:
    """Return the offsets of the first and the last character with which a node itself is marked; None without marks."""
    start, end = node.meta_get("start"), node.meta_get("end")
    return (start, end) if isinstance(start, int) and isinstance(end, int) else None
