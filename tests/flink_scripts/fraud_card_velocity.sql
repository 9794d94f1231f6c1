-- Cards with more than three payments within a minute.
CREATE TABLE card_payments (
  card STRING,
  amount DECIMAL(12, 2),
  paid_at TIMESTAMP(3),
  WATERMARK FOR paid_at AS paid_at - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'payments', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'avro');

CREATE TABLE suspicious (card STRING, paid_at TIMESTAMP(3), payments BIGINT, total DECIMAL(38, 2)) WITH ('connector' = 'print');

INSERT INTO suspicious
SELECT card, paid_at, payments, total FROM (
  SELECT card, paid_at,
    COUNT(*) OVER (PARTITION BY card ORDER BY paid_at RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW) AS payments,
    SUM(amount) OVER (PARTITION BY card ORDER BY paid_at RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW) AS total
  FROM card_payments
)
WHERE payments > 3;
