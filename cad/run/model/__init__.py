"""Make estimators, fit steps in folds, explain predictions, and store models as bundles."""
