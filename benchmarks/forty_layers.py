"""Maps of forty layers, and over training, each in one training run on a GPU.

    python benchmarks/forty_layers.py text --probe
    python benchmarks/forty_layers.py text --out docs/sublayers/forty-text
    python benchmarks/forty_layers.py text --out docs/sublayers/forty-text --decode

The experiments are examples/TASK-40-layers.toml. `tapehead train` and `tapehead sublayers RUN --search swift --moments
6` do the same, but train twice. Into the folder go the files of that command (sublayers, skip and over-training as
JSON, SVG and PNG), metrics.jsonl with the course of the training, and facts.json; the weights go to --weights, 32 MB
for text. --decode measures draft and verify on those again, for instance when a device has no other
work; only a model of text generates tokens. --probe only says how long an update takes.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tapehead.commands.sublayers import TOKENS, milestones
from tapehead.environment import environment
from tapehead.evaluation.summaries import quartiles
from tapehead.experiment.config import Experiment, read_toml
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import BLOCK
from tapehead.figures import style, sublayers
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet
from tapehead.sublayers.decoding import decode, draft_and_verify
from tapehead.sublayers.mapping import PROMPT_TOKENS, SHARE, is_language_model, map_sublayers
from tapehead.sublayers.objectives import prompts_of
from tapehead.sublayers.search import middle_layers
from tapehead.sublayers.worth import Worth, expect_transformer, worth_now

EXAMPLES = Path(__file__).parents[1] / "examples"
TASKS = ("text", "reverse", "graph")
MOMENTS, FEW = 6, 48
"""Maps over training, and the sequences of each; the last map has 200."""
PROMPTS = 8
SETS = 60
"""Sets that the search by expected speed-up tries; a Gaussian process over more takes longer than the passes."""


def load(file: Path, device: str, episodes: int | None) -> Experiment:
    changes: dict[str, Any] = {"place.device": device}
    changes |= {} if episodes is None else {"training.episodes": episodes}
    return Experiment.from_plain(read_toml(file), str(file)).with_values(changes)


def wait() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def probe(experiment: Experiment) -> None:
    trainer = Trainer(experiment)
    trainer.prepare()
    for _ in range(2):
        begin = wait()
        trainer.block()
        print(f"{trainer.updates} updates, the last {BLOCK} in {wait() - begin:.2f} s", flush=True)
    print(f"{experiment.updates:,} updates: {(wait() - begin) / BLOCK * experiment.updates:.0f} s")


def follow(trainer: Trainer, model: Transformer) -> dict[int, Worth]:
    """Train to the end; what sub-layers are worth at moments on the way, by training sequences."""
    found, wanted = {}, milestones(trainer.experiment.updates, MOMENTS)
    while True:
        if trainer.updates in wanted:
            found[trainer.episodes] = worth_now(trainer, model, FEW)
            print(f"{trainer.updates} updates, whole model {found[trainer.episodes].whole:.1f} bits", flush=True)
        if trainer.finished:
            return found
        trainer.block()


def decoded(model: Transformer, skip: SkipSet, prompts: list[list[int]]) -> dict[str, Any]:
    """Greedy decoding of the same tokens with and without the draft, each prompt one after the other."""
    decode(model, prompts[0], 4)  # the first call on a device takes longer
    pairs = [(decode(model, each, TOKENS), draft_and_verify(model, skip, each, TOKENS)) for each in prompts]
    rounds, accepted = (sum(getattr(draft, name) for _, draft in pairs) for name in ("rounds", "accepted"))
    calls = [sum(pair[i].evaluations for pair in pairs) for i in (0, 1)]
    return {
        "prompts": len(prompts),
        "tokens": TOKENS,
        "same_output": sum(plain.tokens == draft.tokens for plain, draft in pairs),
        "accepted_per_verification": accepted / rounds,
        "tokens_per_pass": (accepted + rounds) / rounds,
        "sublayer_calls_saved": 1 - calls[1] / calls[0],
        "speed": quartiles([plain.seconds / draft.seconds for plain, draft in pairs])._asdict(),
    }


def write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n")


def decode_again(experiment: Experiment, weights: Path, out: Path) -> None:
    model = expect_transformer(experiment.build()).to(experiment.place.device)
    if not is_language_model(model, experiment.task):
        raise SystemExit(f"a model of {experiment.task.name} generates no tokens: --decode is for text.")
    if not weights.exists():
        raise SystemExit(f"{weights} is not there: train first, without --decode.")
    with torch.no_grad():
        model.load_flat(load_file(weights, experiment.place.device)["parameters"])
    facts = json.loads((out / "facts.json").read_text())
    prompts = prompts_of(experiment.task, PROMPTS, PROMPT_TOKENS)
    for each in facts["decoding"]:
        each |= decoded(model.eval(), SkipSet.of_numbers(each["skipped"]), prompts)
    write(out / "facts.json", facts)
    print(json.dumps(facts["decoding"], indent=1))


def train_and_map(experiment: Experiment, weights: Path, out: Path) -> None:
    for folder in (out, weights.parent):
        folder.mkdir(parents=True, exist_ok=True)
    trainer, model = Trainer(experiment), expect_transformer(experiment.build())
    begin = wait()
    series = follow(trainer, model)
    (out / "metrics.jsonl").write_text("".join(line + "\n" for line in trainer.metrics))
    trained = wait()
    with torch.no_grad():
        model.load_flat(trainer.population.delivered()[0])
    save_file({"parameters": trainer.population.delivered()[0]}, weights)
    model.eval()
    found = map_sublayers(model, trainer.task, search="swift")
    write(out / "sublayers.json", found.to_plain())
    write(out / "skip.json", found.skip.to_plain())
    write(out / "over-training.json", {str(at): worth.to_plain() for at, worth in series.items()})
    title = f"{style.task_title(trainer.task.name)}, {model.num_layers} layers of {model.hidden_size}"
    style.save(sublayers.draw_map(found, title), out, "sublayers")
    count = middle_layers(model.num_layers, SHARE).count or 0
    style.save(sublayers.draw_strip(series, count, title), out, "over-training")
    mapped = wait()
    facts: dict[str, Any] = {"environment": environment(experiment.place.device, trainer.backend)}
    facts |= {"experiment": dataclasses.replace(experiment, recipe="custom").to_plain()}
    facts |= {"parameters": len(model.flat_parameters()), "updates": trainer.updates, "sequences": trainer.episodes}
    facts |= {"training_seconds": round(trained - begin, 1), "map_seconds": round(mapped - trained, 1)}
    if is_language_model(model, trainer.task):
        fastest = map_sublayers(
            model, trainer.task, search="bayesian", judge="speedup", evaluations=SETS, sequences=FEW
        )
        prompts = prompts_of(trainer.task, PROMPTS, PROMPT_TOKENS)
        facts["decoding"] = [
            {"judge": each.judged_by, "value": each.value, "agreement": each.agreement, "skipped": each.skip.numbers}
            | decoded(model, each.skip, prompts)
            for each in (found, fastest)
        ]
    write(out / "facts.json", facts)
    print(json.dumps({name: value for name, value in facts.items() if name != "experiment"}, indent=1))
    print(f"skipped: {', '.join(map(str, found.skip.numbers))}; {found.agreement:.1%} of the answers agree")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="one of " + ", ".join(TASKS) + ", or a TOML file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--episodes", type=int, help="training sequences, if not those of the file")
    parser.add_argument("--probe", action="store_true")
    parser.add_argument(
        "--decode", action="store_true", help="only measure draft and verify, on weights that are there"
    )
    parser.add_argument("--out", type=Path, help="by default docs/sublayers/forty-TASK")
    parser.add_argument("--weights", type=Path, help="by default runs/forty-TASK/weights.safetensors")
    options = parser.parse_args()
    file = EXAMPLES / f"{options.task}-40-layers.toml" if options.task in TASKS else Path(options.task)
    experiment = load(file, options.device, options.episodes)
    name = f"forty-{experiment.task.name}"
    out = options.out or Path("docs/sublayers") / name
    weights = options.weights or Path("runs") / name / "weights.safetensors"
    if options.probe:
        probe(experiment)
    elif options.decode:
        decode_again(experiment, weights, out)
    else:
        train_and_map(experiment, weights, out)


if __name__ == "__main__":
    main()
