"""Who does how much of a step, from what is measured."""
