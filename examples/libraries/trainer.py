# openreg run --devices 1
"""transformers: Trainer in each precision, and resumption from a checkpoint, as on the CPU."""

import tempfile

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)


def train(folder, **arguments):
    set_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=100, intermediate_size=64, hidden_dropout_prob=0.0, **sizes)
    config.attention_probs_dropout_prob = 0.0
    model = BertForSequenceClassification(config)
    data = [{"input_ids": torch.randint(100, (12,)), "labels": i % 2} for i in range(64)]
    options = {"max_steps": 8, "save_steps": 4, "logging_steps": 4, "report_to": []}
    settings = TrainingArguments(folder, dataloader_num_workers=1, **options, **arguments)
    trainer = Trainer(model, settings, train_dataset=data, eval_dataset=data)
    loss = trainer.train().training_loss
    assert trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-4").global_step == 8
    return loss, trainer.evaluate()["eval_loss"], model.device.type


if __name__ == "__main__":
    found = []
    for arguments in {"use_cpu": True}, {}, {"fp16": True}, {"bf16": True}:
        with tempfile.TemporaryDirectory() as folder:
            found.append(train(folder, **arguments))
    assert [device for *_, device in found] == ["cpu", "cuda", "cuda", "cuda"]
    expected, *others = (losses for *losses, _ in found)
    for losses, tolerance in zip(others, (1e-5, 1e-2, 1e-2), strict=True):
        torch.testing.assert_close(losses, expected, rtol=tolerance, atol=0)
