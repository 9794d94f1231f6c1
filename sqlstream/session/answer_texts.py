"""Writes the answers to SHOW, DESCRIBE, EXPLAIN and the like, for people."""

from __future__ import annotations

import io
from typing import TextIO

from sqlstream.compiler.catalog_answers import Answer
from sqlstream.compiler.compiler import Explanation, Question
from sqlstream.session.explaining import explained
from sqlstream.session.rendering import write_table
from sqlstream.session.session import Session
from sqlstream.sql.nodes import CreateStateCheck, DropStateCheck


def write_answer(session: Session, question: Question, stream: TextIO | io.TextIOBase) -> None:
    """Write the answer to a statement such as SHOW, DESCRIBE or EXPLAIN; a changed state check is only a notice."""
    if isinstance(question, Explanation):
        stream.write(explained(question.job, question.stage) + "\n")
        return
    relation = session.answer(question)
    if isinstance(question, CreateStateCheck | DropStateCheck):
        session.notice(relation.fetchall()[0][0])
        return
    if isinstance(question, Answer) and question.columns[0].startswith("create "):
        # The text of a statement, to be copied.
        stream.write("".join(f"{row[0]};\n" for row in question.rows))
        return
    write_table(relation, stream)
