"""The `jsonl-tail` connector: a file of JSON lines that grows, such as a log, followed line by line."""

from sqlstream_jsonl_tail.connector import JsonlTail

__all__ = ["JsonlTail"]
