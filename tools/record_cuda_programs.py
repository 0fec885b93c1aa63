#!/usr/bin/env python3
"""Record the memory that training programs take on a GPU, step by step.

On a machine with an NVIDIA GPU, PyTorch for CUDA and transformers, from the root of the source
tree:

    python tools/record_cuda_programs.py

writes test/fixtures/programs-<GPU>.json.gz. Each program runs in a process of its own. For each
step the record has the figures of the allocator.

``python tools/record_cuda_programs.py gpt2`` runs one program and prints its figures, also under
``openreg run`` or ``openreg run --dry``.
"""

import argparse
import concurrent.futures
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_records
import torch
from torch import Tensor, nn

sys.path.insert(0, str(gpu_records.ROOT / "test" / "pymodule" / "plans"))
import steps as small_steps  # noqa: E402

STEPS = 3
FOLDER = Path(__file__).parent

Step = Callable[[], None]


# ---- models of a library -------------------------------------------------------------------------


def tokens(words: int, *sizes: int) -> Tensor:
    return torch.randint(words, sizes, generator=torch.Generator().manual_seed(0)).cuda()


def images(*sizes: int) -> Tensor:
    return torch.rand(sizes, generator=torch.Generator().manual_seed(0)).cuda()


def training(
    model: nn.Module,
    inputs: Callable[[], dict[str, Any]],
    autocast: torch.dtype | None = None,
    make_optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    scales: bool = False,
    **options: Any,
) -> Step:
    """Return a step that trains a model, whose loss is the member ``loss`` of its result."""
    optimizer = make_optimizer(model.parameters(), lr=1e-4, **options)
    scaler = torch.amp.GradScaler("cuda", enabled=scales)

    def step() -> None:
        with torch.autocast("cuda", autocast, enabled=autocast is not None):
            loss = model(**inputs()).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def language(batch: int, length: int, words: int) -> Callable[[], dict[str, Any]]:
    def inputs() -> dict[str, Any]:
        ids = tokens(words, batch, length)
        return {"input_ids": ids, "labels": ids}

    return inputs


def gpt2(batch: int = 8) -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda()
    return training(model, language(batch, 512, 50257), torch.bfloat16)


# Llama 3.2 1B and Llama 3.1 8B.
LLAMA_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "tie_word_embeddings": True,
}
LLAMA_8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}


def llama_model(sizes: dict[str, Any] = LLAMA_1B) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, **sizes)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).bfloat16()
    model = model.to_empty(device="cuda")
    model.tie_weights()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    inverse = model.model.rotary_emb
    width = config.hidden_size // config.num_attention_heads
    frequencies = 1.0 / 500000 ** (torch.arange(0, width, 2, device="cuda").float() / width)
    inverse.inv_freq = inverse.original_inv_freq = frequencies
    return model


def llama() -> Step:
    return training(llama_model(), language(2, 2048, 128256))


def llama_checkpointed(batch: int = 2) -> Step:
    model = llama_model()
    model.gradient_checkpointing_enable()
    model.train()
    return training(model, language(batch, 2048, 128256), fused=True)


def llama_inference() -> Step:
    model = llama_model().eval()

    def step() -> None:
        with torch.no_grad():
            cache = None
            ids = tokens(128256, 4, 512)
            for _ in range(4):
                result = model(input_ids=ids, past_key_values=cache, use_cache=True)
                cache, ids = result.past_key_values, result.logits[:, -1:].argmax(-1)

    return step


def llama_adapted() -> Step:
    from peft import LoraConfig, get_peft_model

    model = llama_model(LLAMA_8B)
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    adapters = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    return training(get_peft_model(model, adapters).train(), language(1, 4096, 128256))


def llama_generation() -> Step:
    model = llama_model(LLAMA_8B).eval()
    model.generation_config.pad_token_id = 0

    def step() -> None:
        model.generate(
            tokens(128256, 8, 1024), max_new_tokens=6, do_sample=False, eos_token_id=None
        )

    return step


def gpt2_of_lengths() -> Step:
    """Each step trains batches of several lengths, which leave free blocks of many sizes."""
    from transformers import GPT2Config, GPT2LMHeadModel

    lengths = iter((377, 64, 512, 130, 901, 33, 700, 258, 1024, 511, 19, 640) * 2)
    step = training(
        GPT2LMHeadModel(GPT2Config()).cuda(),
        lambda: language(4, next(lengths), 50257)(),
        torch.bfloat16,
    )

    def steps() -> None:
        for _ in range(5):
            step()

    return steps


def with_segments_that_expand(make: Callable[[], Step]) -> Step:
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    return make()


def bert() -> Step:
    from transformers import BertConfig, BertForMaskedLM

    return training(BertForMaskedLM(BertConfig()).cuda(), language(32, 128, 30522))


def t5(batch: int = 16) -> Step:
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=0)).cuda()
    return training(model, language(batch, 128, 32128))


def mixture() -> Step:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=8000,
    )
    return training(MixtralForCausalLM(config).cuda(), language(4, 256, 8000), torch.bfloat16)


def pictures(batch: int, side: int = 224) -> Callable[[], dict[str, Any]]:
    return lambda: {
        "pixel_values": images(batch, 3, side, side),
        "labels": tokens(10, batch),
    }


def resnet(
    autocast: torch.dtype | None = None,
    channels_last: bool = False,
    scales: bool = False,
    batch: int = 64,
) -> Step:
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=10)).cuda()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    return training(
        model,
        pictures(batch),
        autocast,
        make_optimizer=torch.optim.SGD,
        scales=scales,
        momentum=0.9,
    )


def vit(batch: int = 64) -> Step:
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_labels=10)).cuda()
    return training(model, pictures(batch), torch.bfloat16)


def convnext() -> Step:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    model = ConvNextForImageClassification(ConvNextConfig(num_labels=10)).cuda()
    return training(model, pictures(32))


def whisper() -> Step:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(WhisperConfig()).cuda()
    return training(
        model,
        lambda: {"input_features": images(4, 80, 3000), "labels": tokens(50000, 4, 64)},
        torch.bfloat16,
    )


# ---- models written here -------------------------------------------------------------------------


class Result:
    def __init__(self, loss: Tensor) -> None:
        self.loss = loss


class Speech(nn.Module):
    """A recurrent network over frames, with the loss of CTC."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layers = kind(80, 512, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(1024, 40)

    def forward(self, frames: Tensor, labels: Tensor) -> Result:
        scores = self.head(self.layers(frames)[0]).log_softmax(-1).transpose(0, 1)
        batch, length = frames.shape[:2]
        lengths = torch.full((batch,), length), torch.full((batch,), labels.shape[1])
        return Result(nn.functional.ctc_loss(scores, labels + 1, *lengths))


def speech(kind: Any) -> Step:
    return training(
        Speech(kind).cuda(),
        lambda: {"frames": images(16, 200, 80), "labels": tokens(39, 16, 20)},
        make_optimizer=torch.optim.Adam,
        fused=True,
    )


class Volumes(nn.Module):
    """Convolutions of three dimensions, transposed ones and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv3d(1, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2)),
            *(nn.Conv3d(16, 32, 3, padding=1), nn.InstanceNorm3d(32), nn.LeakyReLU()),
            *(nn.ConvTranspose3d(32, 16, 2, stride=2), nn.ReLU(), nn.Conv3d(16, 1, 1)),
        )

    def forward(self, volume: Tensor) -> Result:
        return Result(nn.functional.mse_loss(self.layers(volume), volume))


def volumes() -> Step:
    return training(Volumes().cuda(), lambda: {"volume": images(2, 1, 64, 64, 64)}, foreach=False)


def small(name: str) -> Step:
    def step() -> None:
        small_steps.train(name, "cuda", 1)

    return step


def without_cudnn(make: Callable[[], Step]) -> Step:
    torch.backends.cudnn.enabled = False
    return make()


PROGRAMS: dict[str, Callable[[], Step]] = {
    "gpt2": gpt2,
    "llama": llama,
    "llama with checkpoints": llama_checkpointed,
    "llama, inference": llama_inference,
    "llama 8b, adapters": llama_adapted,
    "llama 8b, generation": llama_generation,
    "gpt2, several lengths": gpt2_of_lengths,
    "gpt2, several lengths, expandable segments": lambda: with_segments_that_expand(
        gpt2_of_lengths
    ),
    "bert": bert,
    "t5": t5,
    "mixture of experts": mixture,
    "resnet": resnet,
    "resnet, float16 with a scaler": lambda: resnet(torch.float16, scales=True),
    "resnet, bfloat16 in channels_last": lambda: resnet(torch.bfloat16, channels_last=True),
    "vit": vit,
    "convnext": convnext,
    "whisper": whisper,
    "speech, lstm": lambda: speech(nn.LSTM),
    "speech, gru": lambda: speech(nn.GRU),
    "volumes": volumes,
}
PROGRAMS |= {f"small {name}": lambda name=name: small(name) for name in small_steps.PROGRAMS}
PROGRAMS |= {
    f"{name}, without cuDNN": lambda make=make: without_cudnn(make)
    for name, make in list(PROGRAMS.items())
}


# ---- figures -------------------------------------------------------------------------------------


def figures() -> dict[str, int]:
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "allocated_peak": torch.cuda.max_memory_allocated(),
        "reserved_peak": torch.cuda.max_memory_reserved(),
    }


def run(name: str) -> gpu_records.Record:
    """Run a program. Return its figures after the model is made and after each step."""
    torch.manual_seed(0)
    step = PROGRAMS[name]()
    torch.cuda.synchronize()
    rows = [figures()]
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        rows.append(figures())
    return {"figures": rows}


# Programs that train a batch, and the part of the GPU's memory that the largest one has to fit.
BATCHES: dict[str, tuple[float, Callable[[int], Step]]] = {
    "gpt2": (0.25, lambda batch: gpt2(batch)),
    "llama with checkpoints": (0.25, lambda batch: llama_checkpointed(batch)),
    "resnet": (0.1, lambda batch: resnet(batch=batch)),
    "vit": (0.1, lambda batch: vit(batch)),
    "t5": (0.1, lambda batch: t5(batch)),
}


LARGEST = {f"largest batch of {name}": name for name in BATCHES}


def largest_batch(name: str) -> int:
    """Return the largest batch of a program that a part of the GPU's memory can train."""
    fraction, make = BATCHES[name]
    torch.cuda.set_per_process_memory_fraction(fraction)

    def fits(batch: int) -> bool:
        gc.collect()
        torch.cuda.empty_cache()
        try:
            step = make(batch)
            for _ in range(2):
                step()
            torch.cuda.synchronize()
            return True
        except torch.cuda.OutOfMemoryError:
            return False

    below, above = 1, 2
    while fits(above):
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return below


def run_in_process(name: str, folder: str) -> gpu_records.Record:
    path = Path(folder) / f"{len(os.listdir(folder))}-{name.replace(' ', '-')}.json"
    path.touch()
    command = [sys.executable, __file__, name, "--output", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if result.returncode:
        return {"error": result.stderr.splitlines()[-1:]}
    return json.loads(path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", choices=[*PROGRAMS, *LARGEST])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*", default=[], metavar="PROGRAM")
    parser.add_argument("--jobs", type=int, default=4)
    options = parser.parse_args()
    if options.program:
        if options.program in LARGEST:
            found: gpu_records.Record = {"batch": largest_batch(LARGEST[options.program])}
        else:
            found = run(options.program)
        text = json.dumps(found)
        if options.output:
            options.output.write_text(text)
        else:
            print(text)
        return
    names = options.only or [*LARGEST, *PROGRAMS]
    path = options.output or gpu_records.path_of("programs")
    record: gpu_records.Record = gpu_records.versions()
    with tempfile.TemporaryDirectory() as folder:
        pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
        waiting = {pool.submit(run_in_process, name, folder): name for name in names}
        programs: dict[str, Any] = {}
        for future in concurrent.futures.as_completed(waiting):
            name = waiting[future]
            try:
                programs[name] = future.result()
            except Exception as error:
                programs[name] = {"error": [repr(error)[:200]]}
            print(name, programs[name].get("error", "ok"), flush=True)
            gpu_records.save(record | {"programs": programs}, path)


if __name__ == "__main__":
    main()
