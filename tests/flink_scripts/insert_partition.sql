CREATE TABLE events (id INT, name STRING) WITH ('connector' = 'datagen');
CREATE TABLE archive (id INT, name STRING, dt STRING) PARTITIONED BY (dt) WITH ('connector' = 'filesystem', 'path' = '/data/archive', 'format' = 'csv');
INSERT INTO archive PARTITION (dt = '2026-01-01') SELECT id, name FROM events;
