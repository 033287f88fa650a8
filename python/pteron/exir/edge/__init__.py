"""The edge dialect: its operators, the rules that a graph obeys at each stage, and what its nodes mean."""
