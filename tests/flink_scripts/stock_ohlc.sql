-- Open, high, low and close of each minute.
CREATE TABLE trades (
  symbol STRING, price DOUBLE, volume BIGINT, trade_time TIMESTAMP(3),
  WATERMARK FOR trade_time AS trade_time - INTERVAL '2' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'trades', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE candles (
  symbol STRING, minute_start TIMESTAMP(3), `open` DOUBLE, high DOUBLE, low DOUBLE, `close` DOUBLE, volume BIGINT
) WITH ('connector' = 'print');
INSERT INTO candles
SELECT symbol, window_start, FIRST_VALUE(price), MAX(price), MIN(price), LAST_VALUE(price), SUM(volume)
FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(trade_time), INTERVAL '1' MINUTE))
GROUP BY symbol, window_start, window_end;
