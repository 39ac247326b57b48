"""The contracts by which platforms run models: folders in, folders out, no network."""
