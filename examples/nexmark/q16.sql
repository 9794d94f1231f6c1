-- q16, channel statistics: the same for each channel, and the last minute in which it was used.
CREATE TABLE q16 (
    channel STRING, `day` STRING, `minute` STRING,
    bids BIGINT, low_bids BIGINT, middle_bids BIGINT, high_bids BIGINT,
    bidders BIGINT, low_bidders BIGINT, middle_bidders BIGINT, high_bidders BIGINT,
    auctions BIGINT, low_auctions BIGINT, middle_auctions BIGINT, high_auctions BIGINT,
    PRIMARY KEY (channel, `day`) NOT ENFORCED
);

INSERT INTO q16
SELECT
    channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`, MAX(DATE_FORMAT(`dateTime`, 'HH:mm')),
    COUNT(*),
    COUNT(*) FILTER (WHERE price < 10000),
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(*) FILTER (WHERE price >= 1000000),
    COUNT(DISTINCT bidder),
    COUNT(DISTINCT bidder) FILTER (WHERE price < 10000),
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000),
    COUNT(DISTINCT auction),
    COUNT(DISTINCT auction) FILTER (WHERE price < 10000),
    COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bid
GROUP BY channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
