-- q13, bounded side input: each bid with what a file says about its auction, when the bid is read.
-- The first job makes the file: 10,000 keys with a value.
CREATE TABLE side_input (key BIGINT, `value` STRING)
WITH ('connector' = 'filesystem', 'path' = '${NEXMARK_OUT:-.demo/nexmark}/side_input', 'format' = 'csv');

CREATE TABLE keys (key BIGINT) WITH (
    'connector' = 'datagen', 'number-of-rows' = '10000',
    'fields.key.kind' = 'sequence', 'fields.key.start' = '0', 'fields.key.end' = '9999'
);

INSERT INTO side_input
SELECT key, 'value ' || CAST(key AS STRING) FROM keys;

CREATE TABLE q13 (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), `value` STRING);

INSERT INTO q13
SELECT bid.auction, bid.bidder, bid.price, bid.`dateTime`, side.`value`
FROM bid JOIN side_input FOR SYSTEM_TIME AS OF bid.arrived AS side ON side.key = bid.auction % 10000;
