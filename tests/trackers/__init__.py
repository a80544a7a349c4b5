"""Tests of the tracker adapters."""

import pytest

pytest.register_assert_rewrite("tests.trackers.contract", "tests.trackers.contract_tools")
