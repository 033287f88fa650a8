"""Backends that come with pteron, one package each: compile half (torch) and run half (no torch) in separate
files.
"""
