CREATE TABLE rides (
  zone INT, fare DOUBLE, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'r', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE zones (id INT, borough STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://pg:5432/geo', 'table-name' = 'zones', 'username' = 'u', 'password' = 'p');
CREATE TABLE fares (borough STRING, s TIMESTAMP(3), total DOUBLE) WITH ('connector' = 'print');
CREATE VIEW rides_with_borough AS
SELECT r.fare, r.ts, z.borough FROM rides r JOIN zones FOR SYSTEM_TIME AS OF r.pt AS z ON r.zone = z.id;
INSERT INTO fares
SELECT borough, window_start, SUM(fare) FROM TABLE(TUMBLE(TABLE rides_with_borough, DESCRIPTOR(ts), INTERVAL '15' MINUTE))
GROUP BY borough, window_start, window_end;
