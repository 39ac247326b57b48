"""DICOM: studies in, results out, and the archives that hold both."""
