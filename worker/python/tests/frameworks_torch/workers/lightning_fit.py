"""Trains with Lightning: lightning_fit.py FOLDER EPOCHS [KILLS...]; see recording.py.

With EPOCHS 0, it trains until an epoch ends with a step of two workers.
"""

import sys

import lightning
import recording
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import CombinedLoader

from elasticrun.lightning import ElasticCallback

folder, epochs = sys.argv[1], int(sys.argv[2])
record = recording.Record(folder, sys.argv[3:])
lightning.seed_everything(17)


class Network(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = recording.layers()

    def training_step(self, batch, batch_idx):
        loss = (self.layers(batch["inputs"]) - batch["labels"]).square().mean()
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        self.loss = loss.item()
        record.samples += batch["index"].tolist()
        return loss

    def validation_step(self, batch, batch_idx):
        loss = (self.layers(batch["inputs"]) - batch["labels"]).square().mean()
        self.log("validation", loss, sync_dist=True)

    def on_train_start(self):
        # Of a step that was cut short.
        record.samples.clear()

    def on_before_optimizer_step(self, optimizer):
        record.kill(self.global_step)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        (rate,) = self.lr_schedulers().get_last_lr()
        if self.trainer.fit_loop._should_accumulate():
            return
        whole = self.trainer.num_training_batches
        mean = self.trainer.strategy.reduce(torch.tensor(self.loss)).item()
        record.step(self.global_step, self.current_epoch + (batch_idx + 1) / whole, mean, rate)

    def on_train_epoch_end(self):
        self.trainer.should_stop |= epochs == 0 and record.size == 2
        if self.trainer.is_global_zero and epochs:
            mean = self.trainer.callback_metrics["loss"].item()
            print(f"mean of epoch {self.current_epoch}: {mean:.6f}", flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


network = Network()
loader = recording.loader()
trainer = lightning.Trainer(
    accelerator="cpu",
    strategy="ddp",
    max_epochs=epochs or -1,
    callbacks=[
        ModelCheckpoint(folder, "{epoch}", monitor="validation", save_last=True),
        ElasticCallback(recording.STEPS_PER_COMMIT),
    ],
    default_root_dir=folder,
    accumulate_grad_batches=recording.ACCUMULATE,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
)
trainer.fit(network, CombinedLoader(loader), torch.utils.data.DataLoader(recording.Data(), batch_size=recording.BATCH))
recording.done(
    trainer.global_rank, trainer.world_size, trainer.global_step, trainer.current_epoch, network.parameters()
)
