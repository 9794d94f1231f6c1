-- q15, bidding statistics: a day's bids, bidders and auctions, for each of three ranges of prices.
CREATE TABLE q15 (
    `day` STRING,
    bids BIGINT, low_bids BIGINT, middle_bids BIGINT, high_bids BIGINT,
    bidders BIGINT, low_bidders BIGINT, middle_bidders BIGINT, high_bidders BIGINT,
    auctions BIGINT, low_auctions BIGINT, middle_auctions BIGINT, high_auctions BIGINT,
    PRIMARY KEY (`day`) NOT ENFORCED
);

INSERT INTO q15
SELECT
    DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
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
GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
