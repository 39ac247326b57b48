"""Run models on platforms, by the platforms' contracts.

A contract names the folders of input and output and the files in them; there is no network.
"""
