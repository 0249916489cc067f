"""What does not go with elastic training, and what happens outside of a job."""

from __future__ import annotations

import pytest
from support.jobs import Starter

pytest.importorskip("lightning", reason="Lightning is not installed: run `make test-frameworks`")


@pytest.mark.parametrize("name", ["lightning", "transformers", "accelerate"])
def test_a_missing_framework_is_named_with_its_extra(name: str, start: Starter) -> None:
    start.alone(
        f"""
        import sys
        sys.modules["{name}"] = sys.modules["pytorch_lightning"] = None
        try:
            import elasticrun.{name}
        except ImportError as error:
            assert str(error) == (
                "elasticrun.{name} needs {name}, which is not installed: pip install 'elasticrun[{name}]'"
            ), error
        else:
            raise AssertionError
        """
    )


REFUSED = {
    "a Trainer without torch.distributed": (
        """
        TrainingArguments("output", report_to="none")
        trainer = Trainer(torch.nn.Linear(1, 1), train_dataset=[1], callbacks=[ElasticCallback()])
        trainer.train()
        """,
        "pass use_cpu=True to TrainingArguments",
    ),
    "a batch size that changes": (
        """
        args = TrainingArguments("output", use_cpu=True, report_to="none", auto_find_batch_size=True)
        Trainer(torch.nn.Linear(1, 1), args, train_dataset=[1], callbacks=[ElasticCallback()]).train()
        """,
        "TrainingArguments(auto_find_batch_size=True): the ElasticCallback supports",
    ),
    "a collective before the training": (
        """
        args = TrainingArguments("output", use_cpu=True, report_to="none")
        torch.distributed.barrier()
        assert torch.distributed.get_world_size() == 2
        torch.distributed.all_reduce(torch.ones(1))
        """,
        "NotInitialized: allreduce: workers exchange tensors while they train only",
    ),
    "a group that elasticrun has not made": (
        """
        torch.distributed.init_process_group("gloo")
        args = TrainingArguments("output", use_cpu=True, report_to="none")
        Trainer(torch.nn.Linear(1, 1), args, train_dataset=[1], callbacks=[ElasticCallback()]).train()
        """,
        "torch.distributed was initialised before elasticrun could do it",
    ),
    "Lightning's default strategy": (
        """
        trainer = lightning.Trainer(accelerator="cpu", callbacks=[lightning_callback()], logger=False)
        trainer.fit(lightning.pytorch.demos.boring_classes.BoringModel())
        """,
        'the ElasticCallback supports strategy="ddp"',
    ),
    "several training loaders of Lightning": (
        """
        class Model(lightning.pytorch.demos.boring_classes.BoringModel):
            def train_dataloader(self):
                return [super().train_dataloader()] * 2

        trainer = lightning.Trainer(
            accelerator="cpu", strategy="ddp", callbacks=[lightning_callback()], logger=False, enable_checkpointing=False
        )
        trainer.fit(Model())
        """,
        "the ElasticCallback supports one training DataLoader, not 2",
    ),
    "batches that Accelerate splits": (
        """
        @elasticrun.accelerate.run
        def train(progress):
            accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True))
            accelerator.prepare(torch.utils.data.DataLoader(range(8), 4))

        train()
        """,
        "split_batches=True and dispatch_batches=True of Accelerate fix the number of workers",
    ),
    "a training function without data": (
        """
        @elasticrun.accelerate.run
        def train(progress):
            Accelerator(cpu=True).prepare(torch.nn.Linear(1, 1))
            list(progress.epochs(1))

        train()
        """,
        "elastic training needs the DataLoader of the training data",
    ),
}

IMPORTS = """
import lightning, lightning.pytorch.demos.boring_classes
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from transformers import Trainer, TrainingArguments

import elasticrun.accelerate
from elasticrun.lightning import ElasticCallback as lightning_callback
from elasticrun.transformers import ElasticCallback
"""


@pytest.mark.parametrize("what", REFUSED)
def test_one_error_says_what_is_supported(what: str, start: Starter) -> None:
    text, error = REFUSED[what]
    output = start.train("-np 2", start.script(IMPORTS + start.script(text).read_text())).fail()
    assert error in output, output


def test_outside_of_a_job_nothing_changes(start: Starter) -> None:
    """A single process, which none of the frameworks takes for a worker."""
    start.alone(
        IMPORTS
        + """
assert Trainer._inner_training_loop.__wrapped__ and not torch.distributed.is_initialized()

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"input": torch.ones(1)}

class Network(torch.nn.Linear):
    def forward(self, input):
        return {"loss": super().forward(input).sum()}

args = TrainingArguments("output", use_cpu=True, report_to="none", save_strategy="no", num_train_epochs=2)
trainer = Trainer(Network(1, 1), args, train_dataset=Data(), callbacks=[ElasticCallback()])
assert trainer.train().global_step == 2
assert trainer.train().global_step == 2

trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=1, callbacks=[lightning_callback()], logger=False, enable_checkpointing=False
)
trainer.fit(lightning.pytorch.demos.boring_classes.BoringModel())
assert trainer.global_step == 64

@elasticrun.accelerate.run(steps=0)
def train(progress, count):
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(torch.utils.data.DataLoader(range(8), 4))
    for epoch in progress.epochs(count):
        for batch in loader:
            progress.steps += 1
    return progress.epoch, progress.steps

assert train(3) == (3, 6)
assert not torch.distributed.is_initialized()
"""
    )
