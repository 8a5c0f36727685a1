"""The op families, in reading order. Importing one registers its records."""

from . import (
    collective,
    contract,
    control,
    elementwise,
    index,
    linalg,
    movement,
    nn_activation,
    nn_contract,
    nn_loss,
    nn_misc,
    nn_norm,
    nn_pool,
    nn_quant,
    nn_random,
    nn_recurrent,
    nn_resize,
    random,
    reduce,
    sort,
)
