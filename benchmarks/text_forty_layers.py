"""The map of forty layers, and over training, in one training run on a GPU.

    python benchmarks/text_forty_layers.py --probe
    python benchmarks/text_forty_layers.py --out docs/sublayers/forty

`tapehead train examples/text-40-layers.toml` and `tapehead sublayers RUN --search swift --prompts 8 --moments 6` do the
same, but train twice. Into the folder go the files of that command (sublayers, skip and over-training as JSON, SVG and
PNG), metrics.jsonl with the course of the training, and facts.json; the weights are not kept. --probe only says how
long an update takes.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch

from tapehead.commands.sublayers import TOKENS, milestones
from tapehead.environment import environment
from tapehead.evaluation.summaries import quartiles
from tapehead.experiment.config import Experiment, read_toml
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import BLOCK
from tapehead.figures import style, sublayers
from tapehead.models.transformer.model import Transformer
from tapehead.sublayers.decoding import decode, draft_and_verify
from tapehead.sublayers.mapping import PROMPT_TOKENS, SHARE, SubLayerMap, map_sublayers
from tapehead.sublayers.objectives import prompts_of
from tapehead.sublayers.search import middle_layers
from tapehead.sublayers.worth import Worth, expect_transformer, worth_now

FILE = Path(__file__).parents[1] / "examples/text-40-layers.toml"
MOMENTS, FEW = 6, 48
"""Maps over training, and the sequences of each; the last map has 200."""
PROMPTS = 8


def load(device: str, episodes: int | None) -> Experiment:
    changes: dict[str, Any] = {"place.device": device}
    changes |= {} if episodes is None else {"training.episodes": episodes}
    return Experiment.from_plain(read_toml(FILE), str(FILE)).with_values(changes)


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


def decoded(model: Transformer, found: SubLayerMap, prompts: list[list[int]]) -> dict[str, Any]:
    """Greedy decoding of the same tokens with and without the draft, each prompt one after the other."""
    decode(model, prompts[0], 4)  # the first call on a device takes longer
    pairs = [(decode(model, each, TOKENS), draft_and_verify(model, found.skip, each, TOKENS)) for each in prompts]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--episodes", type=int, help="training sequences, if not those of the file")
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("docs/sublayers/forty"))
    options = parser.parse_args()
    experiment = load(options.device, options.episodes)
    if options.probe:
        probe(experiment)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    trainer, model = Trainer(experiment), expect_transformer(experiment.build())
    begin = wait()
    series = follow(trainer, model)
    (options.out / "metrics.jsonl").write_text("".join(line + "\n" for line in trainer.metrics))
    trained = wait()
    with torch.no_grad():
        model.load_flat(trainer.population.delivered()[0])
    model.eval()
    found = map_sublayers(model, trainer.task, search="swift")
    write(options.out / "sublayers.json", found.to_plain())
    write(options.out / "skip.json", found.skip.to_plain())
    write(options.out / "over-training.json", {str(at): worth.to_plain() for at, worth in series.items()})
    title = f"{style.task_title('text')}, {model.num_layers} layers of {model.hidden_size}"
    style.save(sublayers.draw_map(found, title), options.out, "sublayers")
    count = middle_layers(model.num_layers, SHARE).count or 0
    style.save(sublayers.draw_strip(series, count, title), options.out, "over-training")
    mapped = wait()
    facts: dict[str, Any] = {"environment": environment(options.device, trainer.backend)}
    facts |= {"experiment": dataclasses.replace(experiment, recipe="custom").to_plain()}
    facts |= {"parameters": len(model.flat_parameters()), "updates": trainer.updates, "sequences": trainer.episodes}
    facts |= {"training_seconds": round(trained - begin, 1), "map_seconds": round(mapped - trained, 1)}
    facts["decoding"] = decoded(model, found, prompts_of(trainer.task, PROMPTS, PROMPT_TOKENS))
    facts["decoding_seconds"] = round(wait() - mapped, 1)
    write(options.out / "facts.json", facts)
    print(json.dumps({name: value for name, value in facts.items() if name != "experiment"}, indent=1))
    print(f"skipped: {', '.join(map(str, found.skip.numbers))}; {found.agreement:.1%} of the answers agree")


if __name__ == "__main__":
    main()
