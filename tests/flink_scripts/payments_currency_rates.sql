-- Payments in dollars, with the rate that was valid at the time of the payment.
CREATE TABLE currency_rates (
  currency STRING,
  rate DECIMAL(10, 4),
  update_time TIMESTAMP(3),
  WATERMARK FOR update_time AS update_time - INTERVAL '15' SECOND,
  PRIMARY KEY (currency) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'rates', 'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'raw', 'value.format' = 'json', 'value.json.fail-on-missing-field' = 'false'
);
CREATE TABLE payments (
  id INT, currency STRING, amount DECIMAL(10, 2), payment_time TIMESTAMP(3),
  WATERMARK FOR payment_time AS payment_time - INTERVAL '15' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'payments', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TABLE payments_usd (id INT, usd DECIMAL(20, 2)) WITH ('connector' = 'print');

INSERT INTO payments_usd
SELECT p.id, CAST(p.amount * r.rate AS DECIMAL(20, 2))
FROM payments AS p
JOIN currency_rates FOR SYSTEM_TIME AS OF p.payment_time AS r
  ON p.currency = r.currency;
