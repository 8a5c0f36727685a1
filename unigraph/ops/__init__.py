"""The op families, in reading order. Importing one registers its records."""

from . import elementwise
from . import index, movement, reduce
from . import collective, contract, control, linalg, random, sort
from . import nn_activation, nn_contract, nn_loss, nn_misc, nn_norm, nn_pool, nn_quant, nn_random, nn_recurrent, nn_resize
