"""Provide the convex problem of all kernel learners (docs/methods.md 2), kernels and solvers."""
