"""Nodes: what runs on each besides the tasks, and how tasks are started there."""
