"""Make estimators, fit steps in folds, explain predictions, and keep models as bundles."""
