CREATE TABLE events (id INT, ts TIMESTAMP(3)) WITH ('connector' = 'kafka', 'topic' = 'e',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
ALTER TABLE events ADD (note STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);
ALTER TABLE events SET ('scan.startup.mode' = 'earliest-offset');
CREATE TABLE notes (note STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO notes SELECT note, COUNT(*) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY note, window_start, window_end;
