"""Exchange DICOM: read studies, write results, and talk to the archives that hold both."""
