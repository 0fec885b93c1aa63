"""diffusers: a small UNet, a pipeline with it, and the pipeline with offloading to the host."""

import copy

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

torch.manual_seed(0)
blocks = {
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (32, 64),
}
unet = UNet2DModel(sample_size=16, layers_per_block=1, **blocks)
pixels, steps = torch.randn(2, 3, 16, 16), torch.tensor([3, 7])
expected = unet(pixels, steps).sample
there = copy.deepcopy(unet).cuda()
found = there(pixels.cuda(), steps.cuda()).sample
torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)


def draw(pipeline):
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.manual_seed(0)  # the host's: the same numbers for every device
    return pipeline(generator=generator, num_inference_steps=3, output_type="np").images


scheduler = DDPMScheduler(num_train_timesteps=50)
images = torch.from_numpy(draw(DDPMPipeline(unet, scheduler)))
pipeline = DDPMPipeline(there, scheduler).to("cuda")
torch.testing.assert_close(torch.from_numpy(draw(pipeline)), images, rtol=1e-4, atol=1e-4)
pipeline.enable_model_cpu_offload()
torch.testing.assert_close(torch.from_numpy(draw(pipeline)), images, rtol=1e-4, atol=1e-4)
