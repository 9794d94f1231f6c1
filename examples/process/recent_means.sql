-- A global window with an evictor: every ten readings, the mean of the last half hour.
CREATE TABLE recent_means (sensor STRING, readings BIGINT, mean DOUBLE, at TIMESTAMP(3));

INSERT INTO recent_means
SELECT * FROM recent_means(TABLE readings PARTITION BY sensor, every => 10, minutes => 30, uid => 'recent');
