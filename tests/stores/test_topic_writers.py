"""Writers of a topic whose rows come from an object store: their processes open it themselves."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.kafka.sink import TopicSink
from sqlstream.warehouse.paths import Warehouse
from tests.connectors.kafka.written import make_topic, messages


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.thorough
def test_writers_read_their_parts_from_a_store(kafka: str, bucket: str) -> None:
    topic, columns = make_topic(kafka), (Column("k", "BIGINT"),)
    options = {"connector": "kafka", "topic": topic, "format": "csv", "properties.bootstrap.servers": kafka}
    options |= {"sink.delivery-guarantee": "exactly-once", "sink.parallelism": "2"}
    warehouse = Warehouse(bucket)
    fs, records = warehouse.fs, f"{warehouse.job('test').root}/output/0"
    path = f"{records}/data/0/rows-0-a.parquet"
    with fs.create(path) as file:
        pq.write_table(pa.table({"k": range(50)}), file)
    context = SinkContext(fs, "", records, job="test", warehouse=bucket)
    writer = TopicSink(Table(name="topic", columns=columns, options=options)).open(context)
    try:
        writer.recover()
        writer.write(Batch(0, columns, (fs.path_for_duckdb(path),)))
    finally:
        writer.close()
    assert sorted(int(m.value or "") for m in messages(kafka, topic)) == list(range(50))
    assert fs.exists(f"{records}/pending.json")
    assert fs.exists(f"{records}/writers/1/kafka.json")
