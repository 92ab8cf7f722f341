"""Labels in statements: the values of their parameters, and lists of runs that are driven by a label."""

from __future__ import annotations

import json

from askback.core.labels import Labels
from askback.store.base import LabelSet, RunFilter
from askback.store.sql.connection import Connection, StatementSource
from askback.text.json_text import clean

Values = dict[str, str | None]


def label_values(labels: LabelSet) -> Values:
    """The parameters of a statement. If it is driven by a label, then by the first one."""
    if not labels:
        return {"labels": None}
    pairs = sorted((clean(name), clean(value)) for name, value in labels)
    name, value = pairs[0]
    return {"label_name": name, "label_value": value, "labels": json.dumps(pairs)}


def labelled(
    source: StatementSource, where: RunFilter, file: str, *, by_state: str, by_label: str
) -> tuple[str, Values]:
    """The statement for runs with labels, and its values.

    Unfinished runs are few, so they are found by their state. Others are found by a label.
    """
    state, values = where.state, label_values(where.labels)
    more = {"skill": where.skill, "engine": where.engine, "creator": where.creator}
    values |= {column: clean(text) for column, text in more.items() if text is not None}
    if state is not None and not state.final:
        has_labels = source.statements("fragments")["has_labels"]
        terms = [" AND state = :state", *(f" AND +{column} = :{column}" for column in more if column in values)]
        sql = source.statements(file)[by_state].format(filters="".join(terms) + f" AND {has_labels}")
        return sql, values | {"state": state}
    terms = [f" AND {column} = :{column}" for column in more if column in values]
    ended = "" if state is None else " AND wanted.ended = :ended"
    sql = source.statements(file)[by_label].format(wanted=ended, filters="".join(terms))
    return sql, values if state is None else values | {"ended": state}


def add_labels(connection: Connection, run: int, labels: Labels, ended: str | None) -> None:
    rows = [(clean(name), clean(value), run, ended) for name, value in labels.items()]
    connection.executemany(connection.statements("writes")["insert_label"], rows)
