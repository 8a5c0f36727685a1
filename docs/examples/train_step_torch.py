"""step, written by unigraph for PyTorch; it needs nothing of unigraph.

``step()`` gives the module.
"""

import torch


class step(torch.nn.Module):
    def forward(self, weights, speed, x, y):
        getitem = weights['bias']
        getitem_1 = weights['hidden']
        getitem_2 = weights['out']
        getitem_3 = speed['bias']
        getitem_4 = speed['hidden']
        getitem_5 = speed['out']
        device_1 = getitem.device

        # jvp(network)
        jvp_network_matmul = torch.matmul(x, getitem_1)
        size = x.size(0)
        jvp_network_expand = getitem.expand((size, 5))
        jvp_network_add = torch.add(jvp_network_matmul, jvp_network_expand)
        jvp_network_tanh = torch.tanh(jvp_network_add)
        jvp_network_sub = torch.sub(1.0, jvp_network_tanh)
        jvp_network_matmul_1 = torch.matmul(jvp_network_tanh, getitem_2)
        jvp_network_sub_1 = torch.sub(jvp_network_matmul_1, y)

        # jvp(loss)
        jvp_loss_square = torch.square(jvp_network_sub_1)
        jvp_loss_mul = torch.mul(2.0, jvp_network_sub_1)
        jvp_loss_sum = torch.sum(jvp_loss_square, (1,))
        jvp_loss_full = torch.full((), size, dtype=torch.int64, device=device_1)
        jvp_loss_to = jvp_loss_full.to(torch.int32)
        jvp_loss_to_1 = jvp_loss_to.to(torch.float32)
        jvp_loss_sum_1 = torch.sum(jvp_loss_sum, (0,))
        jvp_loss_div = torch.div(jvp_loss_sum_1, jvp_loss_to_1)

        # transpose(jvp(loss))
        jvp_loss_div_1 = torch.div(1.0, jvp_loss_to_1)
        jvp_loss_expand_1 = jvp_loss_div_1.expand((size, 2))
        jvp_loss_mul_1 = torch.mul(jvp_loss_expand_1, jvp_loss_mul)

        # transpose(jvp(network))
        jvp_network_einsum = torch.functional.einsum('ab,ac->bc', jvp_loss_mul_1, jvp_network_tanh)
        jvp_network_permute = jvp_network_einsum.permute((1, 0))
        jvp_network_transpose = getitem_2.transpose(-1, -2)
        jvp_network_matmul_2 = torch.matmul(jvp_loss_mul_1, jvp_network_transpose)
        jvp_network_mul = torch.mul(jvp_network_matmul_2, jvp_network_sub)
        jvp_network_mul_1 = torch.mul(jvp_network_mul, jvp_network_tanh)
        jvp_network_add_1 = torch.add(jvp_network_mul, jvp_network_mul_1)
        jvp_network_sum = torch.sum(jvp_network_add_1, (0,))
        jvp_network_reshape = jvp_network_sum.reshape((1, 5))
        jvp_network_sum_1 = torch.sum(jvp_network_reshape, (0,))
        jvp_network_einsum_1 = torch.functional.einsum('ab,ac->bc', jvp_network_add_1, x)
        jvp_network_permute_1 = jvp_network_einsum_1.permute((1, 0))

        # update
        update_mul = torch.mul(0.8999999761581421, getitem_3)
        update_mul_1 = torch.mul(0.10000000149011612, jvp_network_sum_1)
        update_sub = torch.sub(update_mul, update_mul_1)
        update_mul_2 = torch.mul(0.8999999761581421, getitem_4)
        update_mul_3 = torch.mul(0.10000000149011612, jvp_network_permute_1)
        update_sub_1 = torch.sub(update_mul_2, update_mul_3)
        update_mul_4 = torch.mul(0.8999999761581421, getitem_5)
        update_mul_5 = torch.mul(0.10000000149011612, jvp_network_permute)
        update_sub_2 = torch.sub(update_mul_4, update_mul_5)
        update_add = torch.add(getitem, update_sub)
        update_add_1 = torch.add(getitem_1, update_sub_1)
        update_add_2 = torch.add(getitem_2, update_sub_2)
        return (jvp_loss_div, {'bias': update_add, 'hidden': update_add_1, 'out': update_add_2}, {'bias': update_sub, 'hidden': update_sub_1, 'out': update_sub_2})
