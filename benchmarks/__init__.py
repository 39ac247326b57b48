"""Benchmarks: each module prints ratios against peers measured in the same process."""
