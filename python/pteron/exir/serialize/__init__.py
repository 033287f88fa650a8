"""From values and instructions to bytes."""
