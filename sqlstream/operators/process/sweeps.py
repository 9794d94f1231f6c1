"""When a process function's state is swept: expired values are deleted."""

from __future__ import annotations

from sqlstream.operators.operator import Clock
from sqlstream.operators.process.tables import StateTables
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.manifests import SWEPT_AT
from sqlstream.units import MILLISECOND

# How many sweeps there are per shortest time to live.
SWEEPS = 4


def is_sweep_due(state: Bucket, tables: StateTables, clock: Clock, name: str = "") -> bool:
    """Tell whether this batch must sweep these tables of a bucket; if so, note its time as the time of the last sweep.

    Sweeps are at least a quarter of the shortest time to live apart. Tables with another `name` have their own sweeps.
    """
    counter = f"{SWEPT_AT}_{name}" if name else SWEPT_AT
    ttls = [one.ttl for one in tables.states if one.ttl]
    if not ttls:
        return False
    swept = state.counters.setdefault(counter, clock.time)
    if clock.time - swept < max(min(ttls) // SWEEPS, MILLISECOND):
        return False
    state.counters[counter] = clock.time
    return True
