"""Talk to archives by one client interface for DICOM networking and DICOMweb."""
