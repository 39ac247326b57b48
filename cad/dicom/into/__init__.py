"""Import DICOM folders, archives and image files into a cohort folder."""
