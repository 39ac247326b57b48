"""Archives: one client interface over DICOM networking and DICOMweb."""
