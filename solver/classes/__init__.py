"""Solving by classes of nodes: counts per class and level first, then concrete nodes."""
