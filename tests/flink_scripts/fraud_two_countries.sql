-- One card in two countries within ten minutes.
CREATE TABLE transactions (
  id BIGINT,
  card_no STRING,
  country STRING,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'transactions', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TABLE frauds (first_id BIGINT, second_id BIGINT, card_no STRING) WITH ('connector' = 'blackhole');

INSERT INTO frauds
SELECT a.id, b.id, a.card_no
FROM transactions a
JOIN transactions b
  ON a.card_no = b.card_no
 AND a.country <> b.country
 AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' MINUTE;
