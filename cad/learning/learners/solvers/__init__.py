"""The convex problem of every kernel learner, its kernels and its solvers."""
