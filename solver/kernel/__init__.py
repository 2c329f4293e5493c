"""Compiled construction and search: plans as arrays, looked at in millions of node states per second."""
