"""The op families, in reading order. Importing one registers its records."""

from . import elementwise
from . import index, movement, reduce
from . import collective, contract, control, linalg, random, sort
