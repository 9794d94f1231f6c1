CREATE TABLE sales (region STRING, product STRING, units INT) WITH ('connector' = 'datagen');
CREATE TABLE cube_of_sales (region STRING, product STRING, units INT) WITH ('connector' = 'print');
INSERT INTO cube_of_sales
SELECT region, product, SUM(units) FROM sales GROUP BY GROUPING SETS ((region, product), (region), ());
