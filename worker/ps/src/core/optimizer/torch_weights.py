"""Writes the table of the test `the_weights_of_torch`: python torch_weights.py > torch_weights.json (torch 2)."""

import json
import random

import torch

STEPS, WEIGHTS = 25, 3
ADAM = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}


def case(name, rule, rate, decay, make):
    draw = random.Random(name)
    weights = torch.tensor([draw.uniform(-1, 1) for _ in range(WEIGHTS)], requires_grad=True)
    optimizer = make([weights])
    history, gradients = [weights.tolist()], []
    for _ in range(STEPS):
        gradient = torch.tensor([draw.gauss(0, 1) for _ in range(WEIGHTS)])
        gradients.append(gradient.tolist())
        weights.grad = gradient
        optimizer.step()
        history.append(weights.tolist())
    numbers = {"rule": rule, "learning_rate": rate, "weight_decay": decay}
    return {"name": name, "optimizer": numbers, "gradients": gradients, "weights": history}


def main():
    o = torch.optim
    momentum = {"momentum": {"momentum": 0.9, "nesterov": False}}
    nesterov = {"momentum": {"momentum": 0.9, "nesterov": True}}
    adagrad = {"adagrad": {"initial": 0.0, "epsilon": 1e-10}}
    started = {"adagrad": {"initial": 0.1, "epsilon": 1e-6}}
    adam = {"adam": {**ADAM, "decoupled": False}}
    adamw = {"adam": {**ADAM, "decoupled": True}}
    cases = [
        case("sgd", "sgd", 0.1, 0.0, lambda w: o.SGD(w, lr=0.1)),
        case("sgd, decay", "sgd", 0.1, 0.01, lambda w: o.SGD(w, lr=0.1, weight_decay=0.01)),
        case("momentum", momentum, 0.05, 0.0, lambda w: o.SGD(w, lr=0.05, momentum=0.9)),
        case(
            "nesterov",
            nesterov,
            0.05,
            0.01,
            lambda w: o.SGD(w, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
        ),
        case("adagrad", adagrad, 0.1, 0.0, lambda w: o.Adagrad(w, lr=0.1)),
        case(
            "adagrad, started",
            started,
            0.1,
            0.01,
            lambda w: o.Adagrad(w, lr=0.1, weight_decay=0.01, initial_accumulator_value=0.1, eps=1e-6),
        ),
        case("adam", adam, 0.01, 0.0, lambda w: o.Adam(w, lr=0.01)),
        case("adam, decay", adam, 0.01, 0.1, lambda w: o.Adam(w, lr=0.01, weight_decay=0.1)),
        case("adamw", adamw, 0.01, 0.1, lambda w: o.AdamW(w, lr=0.01, weight_decay=0.1)),
    ]
    print(json.dumps(cases))


main()
