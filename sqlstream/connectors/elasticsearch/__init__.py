"""Indexes of Elasticsearch and OpenSearch, as tables that jobs write."""
