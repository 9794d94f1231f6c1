"""Messages of a real broker that lack the value of a NOT NULL column: malformed, with their place, as rows of files are."""

from __future__ import annotations

from typing import Any

import pytest

from sqlstream.errors import SqlStreamError
from sqlstream.testing import Stream
from tests.connectors.kafka.topics import Topic, rows_of

pytestmark = pytest.mark.kafka

COLUMNS = "n BIGINT, s STRING NOT NULL"
KEYED = "id BIGINT NOT NULL, s STRING NOT NULL, PRIMARY KEY (id) NOT ENFORCED"
WHY = 'Column "s" is NOT NULL, but the row has no value for it'
# By format: messages, of which those with an odd offset are malformed; the text of the first of them; the rows of the others.
CASES: dict[str, tuple[list[Any], str, list[tuple[Any, ...]]]] = {
    "json": ([{"n": 1, "s": "a"}, {"n": 2}, {"n": 3, "s": ""}, {"s": None}], '{"n": 2}', [(1, "a"), (3, "")]),
    "csv": (["1,a", "2,", '3,""', ","], "2,", [(1, "a"), (3, "")]),
}


@pytest.mark.parametrize("form", CASES)
def test_a_message_without_a_value_that_is_never_null_fails_the_job(kafka: str, form: str) -> None:
    topic, (messages, text, _) = Topic(kafka), CASES[form]
    topic.send(*messages)
    with pytest.raises(SqlStreamError) as failed:
        rows_of(topic.table(COLUMNS, format=form))
    place = f'offset 1 of partition 0 of topic "{topic.name}"'
    assert failed.value.message == f'the value at {place} of table "t" is malformed'
    assert failed.value.detail == f"{WHY}: {text}"
    assert f"'{form}.ignore-parse-errors' = 'true'" in str(failed.value.hint)


@pytest.mark.parametrize("option", ["ignore-parse-errors", "errors-to"])
@pytest.mark.parametrize("form", CASES)
def test_a_message_without_a_value_that_is_never_null_is_skipped(kafka: str, form: str, option: str) -> None:
    topic, (messages, text, rows) = Topic(kafka), CASES[form]
    topic.send(*messages)
    keeps = option == "errors-to"
    table = topic.table(COLUMNS, f", '{form}.{option}' = '{'bad' if keeps else 'true'}'", format=form)
    good = "CREATE TABLE good (n BIGINT, s STRING); INSERT INTO good SELECT * FROM t;"
    with Stream(f"{table} {good}") as stream:
        stream.finish()
        assert stream.query("SELECT * FROM good ORDER BY n") == rows
        assert stream.query("SELECT malformed_rows FROM sqlstream.watermarks") == [(2,)]
        if keeps:
            kept = stream.query("SELECT row_number, file, text, reason FROM bad ORDER BY ALL")
            place = f'partition 0 of topic "{topic.name}"'
            assert kept[0] == (1, place, text, WHY)
            assert [(number, why) for number, _, _, why in kept] == [(1, WHY), (3, WHY)]


@pytest.mark.parametrize("skips", [False, True])
def test_a_change_without_a_value_that_is_never_null_is_malformed(kafka: str, skips: bool) -> None:
    topic = Topic(kafka)
    # A delete needs its key alone.
    topic.send({"op": "c", "after": {"id": 1, "s": "a"}}, {"op": "c", "after": {"id": 2, "s": "b"}})
    topic.send({"op": "d", "before": {"id": 1}}, {"op": "c", "after": {"id": 3}})
    table = topic.table(KEYED, ", 'debezium-json.errors-to' = 'bad'" if skips else "", format="debezium-json")
    check_changes(topic, table, 3, skips)


@pytest.mark.parametrize("skips", [False, True])
def test_an_upsert_without_a_value_that_is_never_null_is_malformed(kafka: str, skips: bool) -> None:
    topic = Topic(kafka)
    topic.send({"s": "a"}, None, key='{"id": 1}')
    topic.send({"s": "b"}, key='{"id": 2}')
    topic.send({}, key='{"id": 2}')
    table = topic.table(
        KEYED,
        ", 'key.format' = 'json', 'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY'"
        + (", 'value.json.errors-to' = 'bad'" if skips else ""),
        format=None,
    ).replace("'connector' = 'kafka'", "'connector' = 'upsert-kafka'")
    check_changes(topic, table, 3, skips)


def check_changes(topic: Topic, table: str, malformed: int, skips: bool) -> None:
    """Check that of the messages the one with an offset is malformed, and that those before it leave one row."""
    good = "CREATE TABLE good (id BIGINT, s STRING, PRIMARY KEY (id) NOT ENFORCED); INSERT INTO good SELECT * FROM t;"
    place = f'partition 0 of topic "{topic.name}"'
    with Stream(f"{table} {good}") as stream:
        if not skips:
            with pytest.raises(SqlStreamError) as failed:
                stream.finish()
            assert failed.value.message == f'the value at offset {malformed} of {place} of table "t" is malformed'
            assert str(failed.value.detail).startswith(WHY)
            return
        stream.finish()
        assert stream.query("SELECT * FROM good") == [(2, "b")]
        assert stream.query("SELECT row_number, file, reason FROM bad") == [(malformed, place, WHY)]
