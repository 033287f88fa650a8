"""What a vendor tests a backend with: `check_backend` lowers small models, runs them, damages the blobs."""

from pteron.testing.backend_report import BackendReport, Check
from pteron.testing.check_backend import check_backend
from pteron.testing.models import ModelCase, model_cases

__all__ = ["BackendReport", "Check", "ModelCase", "check_backend", "model_cases"]
