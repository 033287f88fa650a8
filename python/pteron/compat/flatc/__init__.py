"""A FlatBuffers schema read from its text, and what the FlatBuffers compiler does with one: JSON to the
binary form and back, byte for byte as `flatc` writes it. Serialisers of vendors call it for their blobs.
"""
