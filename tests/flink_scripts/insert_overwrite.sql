CREATE TABLE events (id INT, name STRING) WITH ('connector' = 'filesystem', 'path' = '/data/events', 'format' = 'parquet');
CREATE TABLE archive (id INT, name STRING, dt STRING) PARTITIONED BY (dt) WITH ('connector' = 'filesystem', 'path' = '/data/archive', 'format' = 'parquet');
INSERT OVERWRITE archive PARTITION (dt = '2026-01-01') SELECT id, name FROM events;
