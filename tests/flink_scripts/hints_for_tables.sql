CREATE TABLE events (id INT, v INT) WITH ('connector' = 'kafka', 'topic' = 'e', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE copy (id INT, v INT) WITH ('connector' = 'print');
INSERT INTO copy /*+ OPTIONS('sink.parallelism' = '1') */
SELECT id, v FROM events /*+ OPTIONS('scan.startup.mode' = 'earliest-offset') */;
