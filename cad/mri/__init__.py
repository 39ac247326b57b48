"""Read images and measure features: volumes come in, one row of features per region goes out."""
