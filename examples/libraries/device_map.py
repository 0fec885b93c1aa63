"""transformers and accelerate: a model split over devices and the host, and what it generates."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=1000, num_attention_heads=4, **sizes))
tokens = torch.randint(1000, (2, 8))
options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
logits, generated = model(tokens).logits, model.generate(tokens, **options)

last = {"model.norm": 1, "model.rotary_emb": 1, "lm_head": 1}
first = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": 1}
offloaded = first | {"model.layers.2": "cpu", "model.layers.3": "disk"} | last
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    for device_map in "auto", "balanced", {"": 1}, "cuda:1", offloaded:
        there = LlamaForCausalLM.from_pretrained(
            folder, device_map=device_map, offload_folder=f"{folder}/offloaded"
        )
        inputs = tokens.to(there.device)
        assert inputs.is_cuda
        torch.testing.assert_close(there(inputs).logits.cpu(), logits, rtol=1e-4, atol=1e-4)
        assert torch.equal(there.generate(inputs, **options).cpu(), generated)
    half = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float16, device_map="auto")
    assert {parameter.device.index for parameter in half.parameters()} == {0, 1}
    assert half.generate(tokens.cuda(), num_beams=3, max_new_tokens=4, pad_token_id=0).is_cuda
