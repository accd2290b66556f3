"""Fits models of hardware and of services to measurements, and says how well they fit.

Read `endpoint.py` first: the fit; `report.py` is what comes out, `profiles.py` writes and reads files.
"""

from agentsim.calibrate.endpoint import calibrate_endpoints, check_endpoints
from agentsim.calibrate.profiles import endpoint_documents, profile_document, read_profiles
from agentsim.calibrate.report import Calibration, Report

__all__ = [
    "Calibration",
    "Report",
    "calibrate_endpoints",
    "check_endpoints",
    "endpoint_documents",
    "profile_document",
    "read_profiles",
]
