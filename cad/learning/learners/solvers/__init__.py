"""Provide the convex problem of all kernel learners, its kernels and its solvers."""
