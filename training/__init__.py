"""The training runtime: elastic parameter-server training, apart from the scheduler."""
