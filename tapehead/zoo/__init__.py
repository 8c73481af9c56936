"""Trained machines that come with the package.

>>> from tapehead import zoo
>>> zoo.names()
>>> machine = zoo.load("copy-ntm-lstm")         # a model in eval mode, strictly the one that its card describes
>>> zoo.card("copy-ntm-lstm").command           # the line that trains it
"""

from tapehead.zoo.cards import Card
from tapehead.zoo.store import card, fetch, load, names, snapshots

__all__ = ["Card", "card", "fetch", "load", "names", "snapshots"]
