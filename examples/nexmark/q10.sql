-- q10, log to files: every bid, in a folder for each minute.
-- A batch's files appear when it is committed; there are no marks for folders that are complete.
CREATE TABLE q10 (
    auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING, dt STRING, hm STRING
) PARTITIONED BY (dt, hm) WITH (
    'connector' = 'filesystem', 'path' = '${NEXMARK_OUT:-.demo/nexmark}/q10', 'format' = 'csv'
);

INSERT INTO q10
SELECT auction, bidder, price, `dateTime`, extra, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'), DATE_FORMAT(`dateTime`, 'HH-mm') FROM bid;
