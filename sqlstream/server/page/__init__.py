"""The page: files that a browser loads from the server; what they show they ask over HTTP, as any client does."""
