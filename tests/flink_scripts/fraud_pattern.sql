-- A small payment, then a large one: a pattern of rows.
CREATE TABLE payments (
  account BIGINT,
  amount INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'payments', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TABLE alerts (account BIGINT, small INT, large INT) WITH ('connector' = 'print');

INSERT INTO alerts
SELECT account, small, large
FROM payments
MATCH_RECOGNIZE (
  PARTITION BY account
  ORDER BY ts
  MEASURES S.amount AS small, L.amount AS large
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (S L) WITHIN INTERVAL '1' MINUTE
  DEFINE S AS S.amount < 10, L AS L.amount > 500
);
