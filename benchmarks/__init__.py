"""Compare speed and results with peers: each module prints ratios measured in one process."""
