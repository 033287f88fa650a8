"""Ready-made ways to find partitions."""
