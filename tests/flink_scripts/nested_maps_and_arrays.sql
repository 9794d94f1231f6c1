CREATE TABLE t (m MAP<STRING, INT>, a ARRAY<INT>) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE out_values (x INT, first_element INT, n INT, has_two BOOLEAN, r ROW<p INT, q STRING>) WITH ('connector' = 'print');
INSERT INTO out_values SELECT m['x'], a[1], CARDINALITY(a), ARRAY_CONTAINS(a, 2), ROW(a[1], 'q') FROM t;
