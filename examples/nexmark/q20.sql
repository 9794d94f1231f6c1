-- q20, expand bid with auction: the bids for auctions of category 10, with all that is known of those.
CREATE TABLE q20 (
    auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_time TIMESTAMP(3), bid_extra STRING,
    itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, auction_time TIMESTAMP(3), expires TIMESTAMP(3),
    seller BIGINT, category BIGINT, auction_extra STRING
);

INSERT INTO q20
SELECT auction, bidder, price, channel, url, bid.`dateTime`, bid.extra,
    itemName, description, initialBid, reserve, auction.`dateTime`, expires, seller, category, auction.extra
FROM bid JOIN auction ON bid.auction = auction.id
WHERE category = 10;
