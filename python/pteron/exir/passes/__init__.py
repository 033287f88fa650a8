"""Graph passes: one per file, in the order that `pass_order` lists."""
