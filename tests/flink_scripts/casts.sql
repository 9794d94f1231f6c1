CREATE TABLE raw_values (t STRING, d DOUBLE, b BOOLEAN, ts TIMESTAMP(3)) WITH ('connector' = 'datagen');
CREATE TABLE cast_values (i INT, j INT, cut VARCHAR(3), flag STRING, at_time STRING, big STRING) WITH ('connector' = 'print');
INSERT INTO cast_values
SELECT CAST(t AS INT), CAST(d AS INT), CAST('abcdef' AS VARCHAR(3)), CAST(b AS STRING), CAST(ts AS STRING), CAST(d * 1e7 AS STRING) FROM raw_values;
