"""Tables of state: segments, manifests, buckets, Z-sets, the log of a job, snapshots, views, recovery."""
