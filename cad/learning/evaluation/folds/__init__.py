"""Validate, select and compare learners by folds that keep patients whole."""
