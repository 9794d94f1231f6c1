CREATE TABLE src (k STRING, v INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1', 'fields.k.length' = '3');
CREATE TABLE small (k STRING, v INT) WITH ('connector' = 'blackhole');
CREATE TABLE large (k STRING, v INT) WITH ('connector' = 'blackhole');
EXECUTE STATEMENT SET
BEGIN
  INSERT INTO small SELECT k, v FROM src WHERE v < 100;
  INSERT INTO large SELECT k, v FROM src WHERE v >= 100;
END;
