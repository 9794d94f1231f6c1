CREATE TABLE quotes (
  sym STRING, bid DOUBLE, pt AS PROCTIME()
) WITH ('connector' = 'datagen');
CREATE TABLE averages (sym STRING, bid DOUBLE, avg3 DOUBLE) WITH ('connector' = 'print');
INSERT INTO averages
SELECT sym, bid, AVG(bid) OVER (PARTITION BY sym ORDER BY pt ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM quotes;
