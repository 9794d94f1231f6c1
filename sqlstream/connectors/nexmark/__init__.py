"""The `nexmark` connector: people, auctions and bids."""
