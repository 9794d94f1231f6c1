CREATE TABLE nums (a INT, b INT, t STRING) WITH ('connector' = 'datagen');
CREATE TABLE hits (a INT) WITH ('connector' = 'print');
INSERT INTO hits
SELECT a FROM nums
WHERE a BETWEEN SYMMETRIC b AND 1
  AND t SIMILAR TO '(x|y)%'
  AND t IS NOT DISTINCT FROM t
  AND (a > 0) IS TRUE;
