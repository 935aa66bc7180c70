"""Jacobians by tangents, column by column: what rows, differences and compressed entries are held against."""

import numpy as np

from kernelab.autodiff.jacobians.jacobian import Jacobian, Jacobians, tangents_of_columns
from kernelab.autodiff.jacobians.subject import Subject


def columns(subject: Subject) -> Jacobians:
    """All columns of the Jacobians of a subject."""
    matrices = []
    for i, source in enumerate(subject.sources):
        targets, tangents = tangents_of_columns(subject, i, np.arange(source.count))
        for target, values in zip(targets, tangents, strict=True):
            matrices.append(Jacobian(values.T, source, target))
    return Jacobians(subject.name, matrices)
