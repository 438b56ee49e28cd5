"""The steps of `bench.suite.steps` as a PyTorch user writes them, eager and compiled."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

# a batch of one: with two threads it took 1.2 to 7 times as long on two busy cores
torch.set_num_threads(1)


def sgd(
    w: Any, x: Any, y: Any, indices: Any, step: float, compiled: bool, **unused: float
) -> Callable[[], list]:
    """torch.nn and torch.optim.SGD; the loss is compiled, the loop and the optimizer are not."""
    weights, xs, ys, order = _tensors(w, x, y, indices)
    (width, inputs), (outputs, _) = (each.shape for each in weights)
    layers = (
        torch.nn.Linear(inputs, width, bias=False),
        torch.nn.Linear(width, outputs, bias=False),
    )
    model = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=step)

    def loss(x, y):
        return torch.linalg.vector_norm(model(x) - y)

    loss = torch.compile(loss) if compiled else loss

    def walk() -> list:
        with torch.no_grad():
            for layer, weight in zip(layers, weights, strict=True):
                layer.weight.copy_(weight)
        for i in order:
            optimizer.zero_grad(set_to_none=True)
            loss(xs[i], ys[i]).backward()
            optimizer.step()
        return [layer.weight.detach().numpy() for layer in layers]

    return walk


def pli(
    w: Any,
    x: Any,
    y: Any,
    indices: Any,
    step: float,
    nu: float,
    kappa: float,
    compiled: bool,
) -> Callable[[], list]:
    """torch.func: the gradient (grad) of the smoothed loss of the linearised residual (jvp), at w
    and at the start.
    """
    start, xs, ys, order = _tensors(w, x, y, indices)

    def model(w, x, y):
        residual = lambda *w: w[1] @ torch.tanh(w[0] @ x) - y
        u, change = torch.func.jvp(
            residual, start, tuple(a - b for a, b in zip(w, start, strict=True))
        )[:2]
        square = torch.sum((u + change) ** 2)
        far = square > nu**2
        return torch.where(
            far, torch.sqrt(torch.where(far, square, 1.0)) - nu / 2, square / (2 * nu)
        )

    slope = torch.func.grad(model)
    mean_slope = torch.func.grad(
        lambda w: torch.mean(torch.func.vmap(model, (None, 0, 0))(w, xs, ys))
    )

    def one(w, total, mean, x, y):
        new, old = slope(w, x, y), slope(start, x, y)
        both = zip(w, new, old, mean, start, strict=True)
        w = tuple(w - step * (a - b + m + kappa * (w - c)) for w, a, b, m, c in both)
        return w, tuple(t + w for t, w in zip(total, w, strict=True))

    advance = torch.compile(one) if compiled else one
    mean = mean_slope(start)

    def walk() -> list:
        w, total = start, tuple(torch.zeros_like(each) for each in start)
        for i in order:
            w, total = advance(w, total, mean, xs[i], ys[i])
        return [(each / len(order)).numpy() for each in total]

    return walk


def _tensors(w: Any, x: Any, y: Any, indices: Any) -> tuple:
    weights = tuple(torch.tensor(np.asarray(layer["W"])) for layer in w)
    return (
        weights,
        torch.tensor(np.asarray(x)),
        torch.tensor(np.asarray(y)),
        [int(i) for i in indices],
    )


WALKS = {"sgd": sgd, "pli": pli}
