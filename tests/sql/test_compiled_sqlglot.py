"""The compiled form of sqlglot, which another program may have installed."""

from __future__ import annotations

import pytest
import sqlglot.parser

from sqlstream.errors import UsageError
from sqlstream.sql.required_tokens import check_interpreted


def test_the_compiled_form_is_refused_with_a_hint() -> None:
    check_interpreted(sqlglot.parser.__file__)
    with pytest.raises(UsageError, match="package sqlglotc") as raised:
        check_interpreted("/lib/sqlglot/parser.cpython-311-x86_64-linux-gnu.so")
    assert raised.value.hint == "Remove it: pip uninstall sqlglotc. sqlglot works without it, too."
