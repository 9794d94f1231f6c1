CREATE TABLE trips (
  driver STRING, fare DOUBLE, tip DOUBLE, ended TIMESTAMP(3), WATERMARK FOR ended AS ended - INTERVAL '5' MINUTE
) WITH ('connector' = 'kafka', 'topic' = 'trips', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE VIEW paid_trips AS SELECT driver, fare, COALESCE(tip, 0) AS tip, ended FROM trips WHERE fare > 0;
CREATE TABLE good_hours (driver STRING, hour_start TIMESTAMP(3), income DOUBLE) WITH ('connector' = 'print');
INSERT INTO good_hours
WITH hourly AS (
  SELECT driver, window_start, SUM(fare + tip) AS income, AVG(tip / fare) AS tip_share
  FROM TABLE(TUMBLE(TABLE paid_trips, DESCRIPTOR(ended), INTERVAL '1' HOUR))
  GROUP BY driver, window_start, window_end
)
SELECT driver, window_start, income FROM hourly WHERE tip_share > 0.1;
