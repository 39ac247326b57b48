"""What is trained and kept: the estimator, what is fitted in folds, explanations, bundles."""
