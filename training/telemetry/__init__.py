"""What a training run writes down and shows: steps, curves, history, TensorBoard and the terminal."""
