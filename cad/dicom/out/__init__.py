"""Write results as DICOM and FHIR objects: SR, SEG, parametric map, bundle."""
