"""How many examples a property tries. Which ones depends on a seed (`tests/seed.py`)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A share of the examples: `make test` tries a tenth of them, `make test-all` all. PROPERTY_EXAMPLES=10 tries ten times as many:
# all properties take an hour then.
SHARE = float(os.environ.get("PROPERTY_EXAMPLES", "0.1"))
# The first example is always the simplest one, of which little can be learned.
LEAST = 3


def examples(count: int) -> settings:
    """Return settings for a share of so many examples."""
    return settings(
        max_examples=max(min(count, LEAST), round(count * SHARE)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
