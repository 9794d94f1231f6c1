-- A table aggregate: the two highest fares of each hour, whenever they change.
CREATE TABLE top_two (hour TIMESTAMP(3), first DOUBLE, second DOUBLE);

INSERT INTO top_two
SELECT * FROM top_two_fares(
    TABLE (SELECT DATE_TRUNC('hour', ts) AS hour, amount FROM fares) PARTITION BY hour, uid => 'top_two'
);
