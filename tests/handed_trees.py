"""What is in some trees, with types, and which of their containers are one."""

from collections import deque

import numpy as np


def containers(tree, path=()):
    """Every container in a tree with where it is."""
    if isinstance(tree, (list, tuple, deque)):
        yield path, tree
        for k, item in enumerate(tree):
            yield from containers(item, (*path, k))
    elif isinstance(tree, dict):
        yield path, tree
        for key, item in tree.items():
            yield from containers(item, (*path, key))
    elif isinstance(tree, np.ndarray):
        yield path, tree
    elif hasattr(tree, "__dict__") and not isinstance(tree, type):
        yield path, tree
        yield from containers(vars(tree), (*path, "."))


def picture(*trees):
    """What is in some trees, with types, and which containers in them are one."""
    first, found = {}, []
    for path, x in containers(trees):
        same = first.setdefault(id(x), path) if not isinstance(x, tuple) or x else path
        found.append((path, type(x), same))
    return found, leaves(trees)


def leaves(tree):
    if isinstance(tree, (list, tuple, deque)):
        return [type(tree).__name__, *[leaves(x) for x in tree]]
    if isinstance(tree, dict):
        return [(type(k).__name__, k, leaves(x)) for k, x in tree.items()]
    if isinstance(tree, np.ndarray):
        return [tree.dtype, tree.shape, np.round(tree, 9).tolist()]
    if hasattr(tree, "__dict__"):
        return [type(tree).__name__, leaves(vars(tree))]
    if isinstance(tree, float):
        return type(tree), float(f"{tree:.9g}")
    return type(tree), tree
