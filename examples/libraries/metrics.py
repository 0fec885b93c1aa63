"""torchmetrics and einops: results on a device equal those on the host."""

import einops
import torch
import torchmetrics as tm

torch.manual_seed(0)
numbers, labels = torch.rand(20), torch.randint(2, (20,))
scores, classes = torch.rand(20, 3), torch.randint(3, (20,))
pictures = torch.rand(2, 3, 16, 16)
for metric, arguments in (
    (tm.Accuracy("multiclass", num_classes=3), (scores, classes)),
    (tm.ConfusionMatrix("multiclass", num_classes=3), (scores, classes)),
    (tm.AUROC("binary"), (numbers, labels)),
    (tm.AveragePrecision("binary"), (numbers, labels)),
    (tm.SpearmanCorrCoef(), (numbers, numbers.flip(0))),
    (tm.image.StructuralSimilarityIndexMeasure(data_range=1.0), (pictures, pictures.sqrt())),
):
    expected = metric(*arguments)
    metric.reset()
    found = metric.to("cuda:1")(*(argument.to("cuda:1") for argument in arguments))
    assert str(found.device) == "cuda:1"
    torch.testing.assert_close(found.cpu(), expected)

there = pictures.cuda()
for compute in (
    lambda x: einops.rearrange(x, "b c (h i) (w j) -> b (c i j) h w", i=2, j=2),
    lambda x: einops.reduce(x, "b c h w -> b c", "max"),
    lambda x: einops.einsum(x, x, "b c h w, b d h w -> b c d"),
):
    assert compute(there).is_cuda
    torch.testing.assert_close(compute(there).cpu(), compute(pictures))
