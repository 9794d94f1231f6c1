CREATE TABLE signups (
  email STRING, source STRING, pt AS PROCTIME()
) WITH ('connector' = 'kafka', 'topic' = 'signups', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE first_signups (email STRING, source STRING) WITH ('connector' = 'print');
INSERT INTO first_signups
SELECT email, source
FROM (SELECT email, source, ROW_NUMBER() OVER (PARTITION BY email ORDER BY pt) AS n FROM signups)
WHERE n = 1;
