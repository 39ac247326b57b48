"""Make folds that keep patients whole: validation, selection, comparison, permutation."""
