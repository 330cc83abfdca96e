"""Every contract holds for each backend of the session."""

import pytest

from tests.contracts.backends import BACKENDS, Backend


@pytest.fixture(params=BACKENDS, scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    """The backend under test."""
    found: Backend = request.param
    return found
