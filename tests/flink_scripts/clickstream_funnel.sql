-- Which clicks became a purchase within an hour.
CREATE TEMPORARY TABLE ad_clicks (
  click_id BIGINT,
  campaign STRING,
  visitor STRING,
  click_time TIMESTAMP(3),
  WATERMARK FOR click_time AS click_time - INTERVAL '10' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'ad_clicks', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TEMPORARY TABLE purchases (
  purchase_id BIGINT,
  visitor STRING,
  amount DECIMAL(10, 2),
  purchase_time TIMESTAMP(3),
  WATERMARK FOR purchase_time AS purchase_time - INTERVAL '10' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'purchases', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TEMPORARY TABLE attributed (
  campaign STRING,
  purchase_id BIGINT,
  amount DECIMAL(10, 2),
  delay_seconds BIGINT
) WITH ('connector' = 'kafka', 'topic' = 'attributed', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

INSERT INTO attributed
SELECT c.campaign, p.purchase_id, p.amount, TIMESTAMPDIFF(SECOND, c.click_time, p.purchase_time)
FROM ad_clicks c, purchases p
WHERE c.visitor = p.visitor
  AND p.purchase_time BETWEEN c.click_time AND c.click_time + INTERVAL '1' HOUR;
