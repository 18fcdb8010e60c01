"""The API server: what is known of the cluster, what is written to it, and when."""
