"""Edge programs in files: `exir.save`, `exir.load`, and `exir.serde`."""
