"""Tree ensembles of ``ai.onnx.ml``: all trees descend at once, one scan step for each level."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, cut

from .import_ml import DOMAIN, labels, matrix, transformed
from .node import Node, RowBook

rows = RowBook()

LEAF = "LEAF"
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")  # by number, as TreeEnsemble has them
_OPS = {"LEQ": "le", "LT": "lt", "GTE": "ge", "GT": "gt", "EQ": "eq", "NEQ": "ne"}


@dataclass
class Forest:
    """Nodes of all trees in one list; a leaf goes to itself and has weights."""

    targets: int
    feature: list[int] = field(default_factory=list)
    mode: list[str] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    weights: dict[int, dict[int, float]] = field(default_factory=dict)

    def add(self, feature: int, mode: str, value: float, missing: bool) -> int:
        self.feature.append(feature)
        self.mode.append(mode)
        self.value.append(value)
        self.missing.append(missing)
        at = len(self.mode) - 1
        self.yes.append(at)
        self.no.append(at)
        return at

    def depth(self) -> int:
        """Steps from a root to the deepest leaf. Raises Unsupported for a cycle."""
        levels, here = 0, set(self.roots)
        while any(self.mode[i] != LEAF for i in here):
            here = {j for i in here for j in (self.yes[i], self.no[i])}
            levels += 1
            if levels > len(self.mode):
                raise Unsupported("tree ensemble with a cycle")
        return levels


def _leaves(n: Node, forest: Forest, x: Value) -> Value:
    """The leaf that each row reaches in each tree, [rows, trees]."""
    count, trees = x.type.shape[0], len(forest.roots)
    start = along(n.b, n.b.constant(np.asarray(forest.roots, np.int64)), (count, trees), (1,))
    kinds = sorted(set(forest.mode) - {LEAF})
    consts = {
        "feature": np.asarray(forest.feature, np.int64),
        "value": np.asarray(forest.value).astype(x.type.dtype.numpy),
        "missing": np.asarray(forest.missing, bool),
        "yes": np.asarray(forest.yes, np.int64),
        "no": np.asarray(forest.no, np.int64),
        "kind": np.asarray([kinds.index(m) if m in kinds else 0 for m in forest.mode], np.int64),
    }

    def body(b: Any, *values: Value) -> Any:
        known, rows_, here = dict(zip(consts, values)), values[-2], values[-1]
        look = lambda name: b.take(known[name], here, axis=0, mode="clip")
        seen = b.take_along_axis(rows_, look("feature"), axis=1)
        limit, kind = look("value"), look("kind")
        holds = getattr(b, _OPS[kinds[0]])(seen, limit)
        for i, name in enumerate(kinds[1:], 1):
            holds = b.select(b.eq(kind, i), holds, getattr(b, _OPS[name])(seen, limit))
        holds = b.or_(holds, b.and_(look("missing"), b.ne(seen, seen)))
        return (b.select(holds, look("no"), look("yes")),)

    depth = forest.depth()
    if not depth:
        return start
    operands = [n.b.constant(v) for v in consts.values()]
    (found,) = n.b.scan(*operands, x, start, length=depth, num_consts=len(operands) + 1, num_carry=1, body=body)
    return found


def _scores(n: Node, forest: Forest, x: Value, how: str, base: Sequence[float] = ()) -> Value:
    """Weights of the leaves reached, brought together over trees, [rows, targets]."""
    fill = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)
    table = np.full((len(forest.mode), forest.targets), fill)
    for node, own in forest.weights.items():
        for target, weight in own.items():
            table[node, target] = weight
    parts = n.b.take(n.b.constant(table, x.type.dtype), _leaves(n, forest, x), axis=0, mode="clip")
    match how:
        case "MIN":
            y = n.b.reduce_min(parts, axes=(1,))
        case "MAX":
            y = n.b.reduce_max(parts, axes=(1,))
        case _:
            y = n.b.reduce_sum(parts, axes=(1,))
    y = n.b.div(y, float(len(forest.roots))) if how == "AVERAGE" else y
    if len(base):
        y = n.b.add(y, along(n.b, n.b.constant(np.asarray(base), x.type.dtype), y.type.shape, (1,)))
    return y


@rows("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(n: Node) -> Value:
    """Nodes and leaves in two lists, set membership as a chain of comparisons."""
    forest = Forest(n.attr("n_targets"))
    modes = [MODES[int(m)] for m in np.asarray(n.attrs["nodes_modes"]).reshape(-1)]
    splits = np.asarray(n.attrs["nodes_splits"]).reshape(-1).tolist()
    missing = n.attr("nodes_missing_value_tracks_true") or [0] * len(modes)
    sets = _sets(n)
    members: dict[int, list[float]] = {i: next(sets, []) for i, m in enumerate(modes) if m == "MEMBER"}
    weights = np.asarray(n.attrs["leaf_weights"]).reshape(-1).tolist()
    left: list[tuple[int, bool, int, bool]] = []  # node, is a leaf, parent, on its yes side
    made: dict[tuple[int, bool], int] = {}

    def place(node: int, is_leaf: bool) -> int:
        if (node, is_leaf) in made:
            return made[node, is_leaf]
        if is_leaf:
            at = forest.add(0, LEAF, 0.0, False)
            forest.weights[at] = {n.attr("leaf_targetids")[node]: weights[node]}
        else:
            feature, track = n.attr("nodes_featureids")[node], bool(missing[node])
            values = members.get(node, [splits[node]])
            chain = [forest.add(feature, "EQ" if node in members else modes[node], v, track) for v in values]
            for one, other in itertools.pairwise(chain):
                forest.no[one] = other
            at = chain[0]
            target = n.attr("nodes_truenodeids")[node], bool(n.attr("nodes_trueleafs")[node])
            left.extend((*target, one, True) for one in chain)
            left.append((n.attr("nodes_falsenodeids")[node], bool(n.attr("nodes_falseleafs")[node]), chain[-1], False))
        made[node, is_leaf] = at
        return at

    for root in n.attr("tree_roots"):
        only = n.attr("nodes_trueleafs")[root] and n.attr("nodes_falseleafs")[root]
        same = n.attr("nodes_truenodeids")[root] == n.attr("nodes_falsenodeids")[root]
        forest.roots.append(place(n.attr("nodes_truenodeids")[root], True) if only and same else place(root, False))
    while left:
        node, is_leaf, parent, yes = left.pop()
        (forest.yes if yes else forest.no)[parent] = place(node, is_leaf)
    how = ("AVERAGE", "SUM", "MIN", "MAX")[n.attr("aggregate_function", 1)]
    return _scores(n, forest, matrix(n), how)


def _sets(n: Node) -> Iterator[list[float]]:
    """Sets of members, each ended by NaN."""
    found: list[float] = []
    given = n.attrs.get("membership_values")
    for v in [] if given is None else np.asarray(given).reshape(-1).tolist():
        if v != v:
            yield found
            found = []
        else:
            found.append(v)


def _forest(n: Node, prefix: str, targets: int) -> Forest:
    """The older lists: nodes by tree and number, weights beside them."""
    forest = Forest(targets)
    trees, numbers = n.attr("nodes_treeids"), n.attr("nodes_nodeids")
    missing = n.attr("nodes_missing_value_tracks_true") or [0] * len(trees)
    values = n.attr("nodes_values")
    values = n.attrs["nodes_values_as_tensor"].tolist() if values is None else values
    place: dict[tuple[int, int], int] = {}
    for i, key in enumerate(zip(trees, numbers)):
        mode = n.attr("nodes_modes")[i].removeprefix("BRANCH_")
        place[key] = forest.add(n.attr("nodes_featureids")[i], mode, values[i], bool(missing[i]))
        if key[0] not in {trees[j] for j in range(i)} if i < 2 else trees[i] != trees[i - 1]:
            forest.roots.append(place[key])
    for i, (tree, _) in enumerate(zip(trees, numbers)):
        if forest.mode[i] != LEAF:
            forest.yes[i] = place[tree, n.attr("nodes_truenodeids")[i]]
            forest.no[i] = place[tree, n.attr("nodes_falsenodeids")[i]]
    weights = n.attr(f"{prefix}_weights")
    weights = n.attrs[f"{prefix}_weights_as_tensor"].tolist() if weights is None else weights
    owners = zip(n.attr(f"{prefix}_treeids"), n.attr(f"{prefix}_nodeids"), n.attr(f"{prefix}_ids"), weights)
    for tree, number, target, weight in owners:
        own = forest.weights.setdefault(place[tree, number], {})
        own[target] = own.get(target, 0.0) + weight
    return forest


@rows("TreeEnsembleRegressor", domain=DOMAIN)
def tree_regressor(n: Node) -> Value:
    forest = _forest(n, "target", n.attr("n_targets", 1))
    y = _scores(n, forest, matrix(n), n.attr("aggregate_function", "SUM"), n.attr("base_values") or ())
    return transformed(n, n.b.convert(y, dtype="f32") if y.type.dtype.name != "f32" else y)


@rows("TreeEnsembleClassifier", domain=DOMAIN)
def tree_classifier(n: Node) -> tuple[Value, Value]:
    """The label of the largest score, and all scores; weights for one class only are a binary model."""
    known = n.attr("classlabels_int64s") or n.attr("classlabels_strings") or []
    binary = len(known) == 2 and len(set(n.attr("class_ids"))) == 1
    forest = _forest(n, "class", len(known))
    base: list[float] = list(n.attr("base_values") or ())
    x = matrix(n)
    y = _scores(n, forest, x, "SUM", base if len(base) == len(known) else ())
    y = n.b.convert(y, dtype="f32") if y.type.dtype.name != "f32" else y
    if not binary:
        return labels(n, n.b.argmax(y, axis=1, index_dtype="i64")), transformed(n, y)
    column = n.attr("class_ids")[0]
    score = cut(n.b, y, 1, column, column + 1)
    score = n.b.add(score, float(base[0])) if len(base) == 1 else score
    # ONNX Runtime's rule: weights that are never negative are probabilities, others are margins.
    likely = all(w >= 0 for own in forest.weights.values() for w in own.values())
    chosen = n.b.gt(score, 0.5 if likely else 0.0)
    if likely:
        other = n.b.sub(n.b.full_like(score, 1.0), score)
    elif n.attr("post_transform", "NONE") == "LOGISTIC":
        score, other = n.b.logistic(score), n.b.logistic(n.b.neg(score))
    else:
        other = n.b.neg(score)
    scores = n.b.concatenate(other, score, axis=1)
    best = n.b.convert(n.b.reshape(chosen, shape=(y.type.shape[0],)), dtype="i64")
    return labels(n, best), scores
