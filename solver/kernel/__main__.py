"""``python -m coplace.solver.kernel`` compiles the search, so that no solve has to wait for it."""

from coplace.solver.kernel.warm_up import warm_up

if __name__ == "__main__":
    warm_up()
