"""Use the program in hospitals and studies: node, contracts of platforms, reader studies.

A node is a service that receives studies in a hospital and sends results back. Platforms run models
by contracts on input and output. In a reader study several readers score on pages.
"""
