"""What runs once on each node: starting tasks, watching them, and slowing them down for tests."""
