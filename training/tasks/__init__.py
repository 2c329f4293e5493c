"""What runs on the nodes: parameter servers and workers, each in a process of its own."""
