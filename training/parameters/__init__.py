"""The state of a model as one flat vector: its layout, its way over the wire, and the optimiser of one slice of it."""
