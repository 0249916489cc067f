"""A small transformer that learns a text by heart, divided among the workers by FSDP2, whatever becomes of them.

elasticrun -np 4 --min-np 2 --replica-group-size all python pytorch_sharded_text.py
With `--mesh hsdp` each two workers hold the model: `--replica-group-size 2` in place of `all`. With `--mesh tensor` two workers
share each layer: add `--size-multiple 2`.
The text is the Apache License 2.0 (apache.org/licenses/LICENSE-2.0), which may be copied as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import elasticrun.torch as er

TEXT = Path(__file__).parents[2] / "LICENSE"
CONTEXT, WIDTH, HEADS, LAYERS = 64, 64, 4, 2
#: Rows of a step, whatever the number of workers.
ROWS = 48

MESHES: dict[str, dict[str, int | None]] = {
    "fsdp": {"shard": None},
    "hsdp": {"replicate": None, "shard": 2},
    "tensor": {"data": None, "tensor": 2},
}


class Layer(torch.nn.Module):
    """Attention to earlier characters, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = torch.nn.Linear(WIDTH, WIDTH)
        self.inner = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.outer = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The characters of some rows: (rows, CONTEXT, WIDTH) to the same."""
        rows, length, width = x.shape
        heads = self.attention(self.norms[0](x)).view(rows, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(rows, length, width))
        hidden: torch.Tensor = self.outer(torch.nn.functional.gelu(self.inner(self.norms[1](x))))
        return x + hidden


class Transformer(torch.nn.Module):
    """Predicts the next of each character."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.characters = torch.nn.Embedding(characters, WIDTH)
        self.places = torch.nn.Embedding(CONTEXT, WIDTH)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = torch.nn.Linear(WIDTH, characters)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Characters (rows, CONTEXT) to scores of the next ones (rows, CONTEXT, characters)."""
        x = self.characters(rows) + self.places(torch.arange(CONTEXT))
        for layer in self.layers:
            x = layer(x)
        scores: torch.Tensor = self.head(x)
        return scores


def main() -> None:
    """Trains, and has rank 0 print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--mesh", choices=sorted(MESHES), default="fsdp")
    options = parser.parse_args()

    er.init()
    text = TEXT.read_text()
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(character) for character in text])

    def build(mesh: DeviceMesh) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        # The same values in all workers, for the first round. In later rounds they come from the commit.
        torch.manual_seed(2004)
        model = Transformer(len(alphabet))
        if options.mesh == "tensor":
            for layer in model.layers:
                parallelize_module(layer, mesh["tensor"], {"inner": ColwiseParallel(), "outer": RowwiseParallel()})
            mesh = mesh["data"]
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.AdamW(model.parameters(), lr=3e-3)

    batch = er.elastic.GlobalBatch(ROWS, micro=8)
    state = er.elastic.ShardedState(build, mesh=MESHES[options.mesh], step=0)

    @er.elastic.run
    def train(state: er.elastic.ShardedState) -> float:
        model, loss = state.model, torch.zeros(())
        while state.step < options.steps:
            # The rows of a step do not depend on the workers.
            chosen = torch.Generator().manual_seed(state.step)
            starts = torch.randint(len(codes) - CONTEXT - 1, (ROWS,), generator=chosen)
            rows = torch.stack([codes[start : start + CONTEXT + 1] for start in starts.tolist()])
            state.optimizer.zero_grad()
            loss = torch.zeros(())
            for micro in batch.micro_batches():
                own = rows[micro.rows.start : micro.rows.stop]
                with micro.accumulate(model):
                    part = cross_entropy(model(own[:, :-1]).flatten(0, 1), own[:, 1:].flatten()) * micro.weight
                    part.backward()
                loss += part.detach()
            state.optimizer.step()
            state.step += 1
            state.commit()
            if state.step % 20 == 0:
                loss = er.allreduce(loss)
                if er.rank() == 0:
                    print(f"step {state.step}: loss {loss.item():.3f} with {er.size()} workers", flush=True)
        return loss.item()

    final = train(state)
    if er.rank() == 0:
        print(f"it predicts the next character with a loss of {final:.3f}", flush=True)


if __name__ == "__main__":
    main()
