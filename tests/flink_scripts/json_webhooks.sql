-- A topic of webhooks, whose body is text.
CREATE TABLE webhooks (
  body STRING
) WITH ('connector' = 'kafka', 'topic' = 'webhooks', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'raw');
CREATE TABLE pull_requests (repo STRING, number INT, draft STRING, labels STRING) WITH ('connector' = 'print');
INSERT INTO pull_requests
SELECT
  JSON_VALUE(body, '$.repository.full_name'),
  JSON_VALUE(body, '$.number' RETURNING INT),
  JSON_VALUE(body, '$.draft' DEFAULT 'no' ON EMPTY),
  JSON_QUERY(body, '$.labels')
FROM webhooks
WHERE JSON_EXISTS(body, '$.number');
