-- q9, winning bids: each auction with the best bid that came while it was open, the earlier one of two that are equal.
CREATE TABLE q9 (
    id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP(3), expires TIMESTAMP(3),
    seller BIGINT, category BIGINT, extra STRING,
    bidder BIGINT, price BIGINT, bid_time TIMESTAMP(3), bid_extra STRING,
    PRIMARY KEY (id) NOT ENFORCED
);

INSERT INTO q9
SELECT auction.id, itemName, description, initialBid, reserve, auction.`dateTime`, expires, seller, category, auction.extra,
    bidder, price, bid.`dateTime` AS bid_time, bid.extra AS bid_extra
FROM auction JOIN bid ON bid.auction = auction.id AND bid.`dateTime` BETWEEN auction.`dateTime` AND auction.expires
QUALIFY ROW_NUMBER() OVER (PARTITION BY auction.id ORDER BY bid.price DESC, bid.`dateTime`, bid.bidder) = 1;
