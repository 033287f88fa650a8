"""Delegation, compile half: which parts of an edge program go to a backend, and the calls that stand for
them.
"""
