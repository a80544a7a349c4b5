"""One made-up internet for each test."""

import pytest

from tests.worker.egress.world import World


@pytest.fixture
def world() -> World:
    return World()
