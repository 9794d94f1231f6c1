-- A cookbook's way to make rows.
CREATE TABLE subscriptions (
  id STRING,
  start_date TIMESTAMP(3),
  plan STRING,
  price DECIMAL(6, 2),
  WATERMARK FOR start_date AS start_date - INTERVAL '15' SECOND
) WITH (
  'connector' = 'faker',
  'rows-per-second' = '10',
  'fields.id.expression' = '#{Internet.uuid}',
  'fields.start_date.expression' = '#{date.past ''15'',''5'',''SECONDS''}',
  'fields.plan.expression' = '#{regexify ''(free|basic|premium){1}''}',
  'fields.price.expression' = '#{number.numberBetween ''0'',''50''}'
);
SELECT plan, COUNT(id) AS n, SUM(price) AS income FROM subscriptions GROUP BY plan;
