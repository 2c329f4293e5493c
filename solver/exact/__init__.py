"""The exact rung: a solver in a child process, watched, limited and never believed without a check."""
