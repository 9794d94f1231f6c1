-- The benchmark's events: made up, always the same ones, some 10,000 a second of event time. One table has all three kinds.
CREATE TABLE nexmark (
    arrived AS PROCTIME(),
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
    'connector' = 'nexmark',
    'events.num' = '${NEXMARK_EVENTS:-200000}',
    'first-event.rate' = '${NEXMARK_RATE:-10000}',
    'base-time' = '2026-01-01 00:00:00'
);

CREATE VIEW person AS
SELECT person.id, person.name, person.emailAddress, person.creditCard, person.city, person.state, `dateTime`, person.extra
FROM nexmark WHERE event_type = 0;

CREATE VIEW auction AS
SELECT auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve, `dateTime`, auction.expires,
    auction.seller, auction.category, auction.extra
FROM nexmark WHERE event_type = 1;

CREATE VIEW bid AS
SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, `dateTime`, bid.extra, arrived
FROM nexmark WHERE event_type = 2;
