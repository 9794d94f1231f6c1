SET 'table.exec.mini-batch.enabled' = 'true';
SET 'table.exec.mini-batch.allow-latency' = '5 s';
SET 'table.exec.mini-batch.size' = '5000';
SET 'table.optimizer.agg-phase-strategy' = 'TWO_PHASE';
SET 'table.optimizer.distinct-agg.split.enabled' = 'true';
SET 'table.exec.sink.upsert-materialize' = 'NONE';
SET 'pipeline.auto-watermark-interval' = '200 ms';
SET 'table.exec.state.ttl' = '1 h';
CREATE TABLE hits (site STRING, visitor STRING) WITH ('connector' = 'kafka', 'topic' = 'hits',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE totals (site STRING, visitors BIGINT, PRIMARY KEY (site) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = 'totals', 'properties.bootstrap.servers' = 'kafka:9092', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO totals SELECT site, COUNT(DISTINCT visitor) FROM hits GROUP BY site;
