"""Write results as DICOM objects (report, segmentation, map, sheet) and as FHIR bundles."""
