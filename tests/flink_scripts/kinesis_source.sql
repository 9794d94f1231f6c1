CREATE TABLE stream (ticker STRING, price DOUBLE, event_time TIMESTAMP(3), WATERMARK FOR event_time AS event_time - INTERVAL '5' SECOND)
WITH ('connector' = 'kinesis', 'stream' = 'input', 'aws.region' = 'us-east-1', 'scan.stream.initpos' = 'LATEST', 'format' = 'json');
CREATE TABLE averages (ticker STRING, average DOUBLE) WITH ('connector' = 'print');
INSERT INTO averages
SELECT ticker, AVG(price) FROM stream GROUP BY TUMBLE(event_time, INTERVAL '10' SECOND), ticker;
