CREATE TABLE server_logs (
  client_ip STRING,
  log_time TIMESTAMP_LTZ(3),
  WATERMARK FOR log_time AS log_time - INTERVAL '30' SECONDS
) WITH (
  'connector' = 'faker',
  'fields.client_ip.expression' = '#{Internet.publicIpV4Address}',
  'fields.log_time.expression' = '#{date.past ''15'',''5'',''SECONDS''}'
);
SELECT COUNT(DISTINCT client_ip) AS ip_addresses, window_start
FROM TABLE(TUMBLE(TABLE server_logs, DESCRIPTOR(log_time), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
