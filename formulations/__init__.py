"""The mathematics of a round: speeds, memory, weights, candidates, and the evaluator that scores every plan."""
