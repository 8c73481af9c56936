"""12: the same seed twice, alone and in a population, and with one and two threads where a kernel computes it."""

import dataclasses

import torch
from tiny import BASE

import tapehead
from soak.commands import VARIANTS
from soak.fault import Case, Fault
from tapehead.experiment.loop import Trainer

LSTM = tapehead.Model(name="lstm", options={"hidden_size": 7, "num_layers": 2})
TRANSFORMER = tapehead.Model(name="transformer", options={"hidden_size": 8, "num_layers": 2, "num_heads": 2})
EXPERIMENTS = VARIANTS | {
    "LSTM": dataclasses.replace(BASE, model=LSTM),
    "Transformer": dataclasses.replace(BASE, model=TRANSFORMER),
}
BLOCKS = 3


def check(case: Case) -> None:
    source = case.random
    experiment = list(EXPERIMENTS.values())[case.number % len(EXPERIMENTS)]
    others = tuple(source.sample(range(10, 1000), 3))
    seed = source.randrange(10)
    place = source.randrange(4)
    population = (*others[:place], seed, *others[place:])
    backend, _ = experiment.build().backend_and_reason()
    many = 1 if backend == "torch" else 2  # torch's own operators round differently on two threads
    found = []
    for seeds, threads in (((seed,), 1), ((seed,), 1), ((seed,), many), (population, 1), (population, many)):
        torch.set_num_threads(threads)
        trainer = Trainer(experiment.with_values({"seeds": seeds}))
        for _ in range(BLOCKS):
            trainer.block()
        mine = seeds.index(seed)
        found.append({name: part[mine].clone() for name, part in trainer.tensors().items() if part.ndim})
    torch.set_num_threads(1)
    for other in found[1:]:
        different = [name for name, part in found[0].items() if not torch.equal(part, other[name])]
        assert not different, f"{different} differ"
    control = Trainer(experiment.with_values({"seeds": (seed + 1,)}))
    for _ in range(BLOCKS):
        control.block()
    same = torch.equal(control.tensors()["update.parameters"][0], found[0]["update.parameters"])
    assert not same, "another seed gives the same weights, so that the comparison could not fail"


FAULT = Fault(
    number=12,
    title="the same seed twice, alone and in a population, with one and two threads",
    promise="weights, optimiser and records equal to the bit",
    counted="seeds",
    full=20,
    quick=4,
    chunk=10,
    check=check,
    needs=("numba",),
)
