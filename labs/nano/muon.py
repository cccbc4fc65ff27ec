"""Muon: momentum whose update is made orthogonal, for the matrices inside the blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def orthogonal(stack: Tensor, steps: int = 5, *, narrow: bool = True) -> Tensor:
    """Return about the nearest orthogonal matrix of each in `stack` [count, rows, columns].

    Newton-Schulz with the quintic whose coefficients rise fastest at zero; singular values end
    up between about 0.7 and 1.2, which is near enough.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = stack.bfloat16() if narrow else stack
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon:
    """Nesterov momentum, orthogonalised; matrices of one shape are updated together."""

    def __init__(
        self, matrices: Sequence[Tensor], momentum: float = 0.95, *, narrow: bool = True
    ) -> None:
        self.momentum, self.narrow = momentum, narrow
        self.groups: dict[tuple[int, ...], list[Tensor]] = {}
        for matrix in matrices:
            self.groups.setdefault(tuple(matrix.shape), []).append(matrix)
        self.velocity = {
            shape: torch.zeros(len(group), *shape, device=group[0].device)
            for shape, group in self.groups.items()
        }

    @torch.no_grad()
    def step(self, rate: float, decay: float = 0.0) -> None:
        for shape, group in self.groups.items():
            gradient = torch.stack([m.grad for m in group if m.grad is not None])
            velocity = self.velocity[shape]
            velocity.lerp_(gradient, 1 - self.momentum)
            update = orthogonal(gradient.lerp(velocity, self.momentum), narrow=self.narrow)
            scale = rate * max(1.0, shape[0] / shape[1]) ** 0.5
            for matrix, change in zip(group, update, strict=True):
                matrix.mul_(1 - rate * decay).sub_(change, alpha=scale)
                matrix.grad = None
