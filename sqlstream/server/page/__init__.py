"""The page: files that a browser loads from the server; for data they send requests over HTTP, like any client."""
