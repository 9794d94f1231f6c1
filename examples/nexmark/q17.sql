-- q17, auction statistics: an auction's bids of a day, and their prices.
CREATE TABLE q17 (
    auction BIGINT, `day` STRING, bids BIGINT, low_bids BIGINT, middle_bids BIGINT, high_bids BIGINT,
    min_price BIGINT, max_price BIGINT, avg_price DOUBLE, sum_price BIGINT,
    PRIMARY KEY (auction, `day`) NOT ENFORCED
);

INSERT INTO q17
SELECT
    auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
    COUNT(*),
    COUNT(*) FILTER (WHERE price < 10000),
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(*) FILTER (WHERE price >= 1000000),
    MIN(price), MAX(price), AVG(price), CAST(SUM(price) AS BIGINT)
FROM bid
GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
