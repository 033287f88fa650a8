"""From a planned graph to values and instructions."""
