"""PostgreSQL's wire protocol, so that its clients query state and tables of a warehouse; they can only read."""
