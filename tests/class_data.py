"""Makes the class-data archive of Spark's JVM, if there is none yet: `python -m tests.class_data`.

In a new environment each JVM takes twice as much of a core without it. A user's run makes it in the background, with what other
programs leave of the cores; where tests run that is nothing.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Sequence

from sqlstream import Session
from sqlstream.errors import UsageError
from sqlstream.spark.class_data import ClassData, class_data, make_archive
from sqlstream.spark.java import find_java
from sqlstream.spark.jvm import spark_jars

# A job with state, timers and results.
SCRIPT = """
CREATE TABLE given (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen', 'number-of-rows' = '10');
CREATE TABLE counts (k BIGINT, n BIGINT);
INSERT INTO counts SELECT k, COUNT(*) FROM TUMBLE(TABLE given, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY k, window_start, window_end
"""


def archive_now(classes: ClassData, java: Sequence[str], log_file: str) -> None:
    if classes.record is not None:
        make_archive(classes.archive, classes.record, java)


def main() -> None:
    try:
        found = class_data(find_java().path, spark_jars())
    except UsageError as error:
        # The tests say so, too.
        sys.exit(error.render(80))
    if found is None or found.record is None:
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(folder, output=io.StringIO(), notice=lambda text: None) as session,
    ):
        session.sql(SCRIPT)
        session.wait()
        # The classes of a job that failed would be few, and an archive of them would stay.
        ClassData.archive_later = archive_now  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    main()
