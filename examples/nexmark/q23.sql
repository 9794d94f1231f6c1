-- q23, expand bid with person and auction: the bids of people who sell something, too, with who they are and what they sell.
-- One join of three inputs by the same key.
CREATE TABLE q23 (
    bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_extra STRING,
    name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, person_extra STRING,
    itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, auction_time TIMESTAMP(3), expires TIMESTAMP(3),
    category BIGINT, auction_extra STRING
);

INSERT INTO q23
SELECT bidder, price, channel, url, bid.extra,
    name, emailAddress, creditCard, city, state, person.extra,
    itemName, description, initialBid, reserve, auction.`dateTime`, expires, category, auction.extra
FROM bid JOIN person ON person.id = bid.bidder JOIN auction ON auction.seller = bid.bidder;
