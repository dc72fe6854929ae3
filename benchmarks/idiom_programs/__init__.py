"""Functions as people write and publish them, for ``idioms.py``; a module is a field.

They were written without regard to how ``compile`` works, and stay so: an entry that is slow is a
reason to change the compiler, not the entry.
"""

from importlib import import_module

FIELDS = [
    *("language", "networks", "attention", "learning", "numerics", "simulation"),
    *("finance", "statistics", "geometry", "objects", "functions", "lengths"),
]


def entries(fields=FIELDS):
    """All entries by name, in the order of the fields."""
    found = {}
    for field in fields:
        for entry in import_module(f"{__name__}.{field}").FIELD.entries:
            if entry.name in found:
                raise ValueError(f"two entries are named {entry.name}")
            found[entry.name] = entry
    return found


def entry_named(name):
    """This entry; no other field is imported."""
    return entries([name.partition(".")[0]])[name]
