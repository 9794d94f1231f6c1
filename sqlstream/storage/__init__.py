"""State and results in files: segments, manifests, buckets, Z-sets, the log of a job, snapshots, views, recovery."""
