"""Images and features: volumes in, one row of features per region out."""
