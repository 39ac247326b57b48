"""Define the terms of the field: modalities, sectors, texts of results. Nothing is computed
here.
"""
