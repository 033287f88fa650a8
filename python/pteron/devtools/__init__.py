"""Tools around the two halves."""
