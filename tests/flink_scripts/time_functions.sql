CREATE TABLE moments (ts TIMESTAMP(3), epoch BIGINT, txt STRING) WITH ('connector' = 'datagen');
CREATE TABLE parts (y BIGINT, h BIGINT, day_start TIMESTAMP(3), hour_after TIMESTAMP(3), parsed TIMESTAMP(3), unix BIGINT, shown STRING, later TIMESTAMP(3), tomorrow DATE) WITH ('connector' = 'print');
INSERT INTO parts
SELECT
  EXTRACT(YEAR FROM ts), HOUR(ts), FLOOR(ts TO DAY), CEIL(ts TO HOUR),
  TO_TIMESTAMP(txt, 'dd/MM/yyyy HH:mm'),
  UNIX_TIMESTAMP(txt, 'dd/MM/yyyy HH:mm'),
  FROM_UNIXTIME(epoch, 'yyyy-MM-dd'),
  TIMESTAMPADD(DAY, 1, ts),
  CAST(ts AS DATE) + INTERVAL '1' DAY
FROM moments;
