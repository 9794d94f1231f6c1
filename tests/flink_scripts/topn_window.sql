-- The two suppliers with the highest sales of each ten minutes.
CREATE TABLE bid (
  bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING,
  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'bid', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE top_suppliers (s TIMESTAMP(3), supplier_id STRING, total DECIMAL(38, 2), rownum BIGINT) WITH ('connector' = 'print');
INSERT INTO top_suppliers
SELECT window_start, supplier_id, total, rownum
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY total DESC) AS rownum
  FROM (
    SELECT window_start, window_end, supplier_id, SUM(price) AS total, COUNT(*) AS cnt
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))
    GROUP BY window_start, window_end, supplier_id
  )
) WHERE rownum <= 2;
