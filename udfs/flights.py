"""Functions of the flights demo, callable from every SQL file of this project."""

from sqlstream import udf

CITIES = {
    "EWR": "Newark",
    "JFK": "New York",
    "LGA": "New York",
}


@udf
def delay_band(minutes: float) -> str:
    """Name the kind of delay; negative minutes are early."""
    if minutes < 0:
        return "early"
    if minutes < 15:
        return "on time"
    return "late" if minutes < 60 else "very late"


@udf
def airport_city(code: str) -> str | None:
    """Return the city of a New York area airport, or nothing for another airport."""
    return CITIES.get(normal(code))


def normal(code: str) -> str:
    return code.strip().upper()
