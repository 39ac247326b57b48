"""Follow the contracts by which platforms run models: input and output folders, no network."""
