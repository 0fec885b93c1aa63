"""PEFT: LoRA, trained on the second device, saved, loaded onto the first device, and merged."""

import copy
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def train(model, device):
    torch.manual_seed(1)
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    adapted = get_peft_model(model, config).to(device)
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-2)
    losses = []
    for _ in range(4):
        losses.append(adapted(input_ids=tokens.to(device), labels=tokens.to(device)).loss)
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    return adapted, torch.stack(losses).detach().cpu()


torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=100, num_attention_heads=4, **sizes))
tokens = torch.randint(100, (2, 8))
adapted, losses = train(copy.deepcopy(model), "cuda:1")
torch.testing.assert_close(losses, train(copy.deepcopy(model), "cpu")[1], rtol=1e-4, atol=1e-4)
with tempfile.TemporaryDirectory() as folder:
    adapted.save_pretrained(folder)
    merged = PeftModel.from_pretrained(model.cuda(), folder).merge_and_unload()
logits = adapted(tokens.to("cuda:1")).logits.cpu()
torch.testing.assert_close(merged(tokens.cuda()).logits.cpu(), logits, rtol=1e-4, atol=1e-4)
