"""Import: DICOM folders, archives and image files become a cohort folder."""
