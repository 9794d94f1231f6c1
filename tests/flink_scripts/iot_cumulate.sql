-- The energy used today, so far, every six hours.
CREATE TABLE meters (
  meter_id BIGINT,
  kwh DECIMAL(8, 3),
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH ('connector' = 'datagen', 'rows-per-second' = '10', 'fields.meter_id.min' = '1', 'fields.meter_id.max' = '5');

CREATE TABLE used_today (
  meter_id BIGINT, since TIMESTAMP(3), until TIMESTAMP(3), kwh DECIMAL(38, 3)
) WITH ('connector' = 'print');

INSERT INTO used_today
SELECT meter_id, window_start, window_end, SUM(kwh)
FROM TABLE(CUMULATE(TABLE meters, DESCRIPTOR(ts), INTERVAL '6' HOUR, INTERVAL '1' DAY))
GROUP BY meter_id, window_start, window_end;
