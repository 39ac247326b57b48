"""Labels, learners and their evaluation: arrays in, probabilities and measures out."""
