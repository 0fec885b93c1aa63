"""nothing: decompositions overwrite the memory that they allocate."""

import torch

from device import DEVICE

a = torch.eye(8, device=DEVICE) * 3 + 0.1
q, r = torch.linalg.qr(a)
values, vectors = torch.linalg.eigh(a)
u, s, v = torch.linalg.svd(a)
x = torch.linalg.solve(a, torch.ones(8, device=DEVICE))
lower = torch.linalg.cholesky(a)
spectrum = torch.fft.rfft(a).abs()
norm = q.sum() + r.sum() + values.sum() + u.sum() + s.sum() + v.sum() + x.sum() + lower.sum()
total = norm + vectors.abs().sum() + spectrum.sum() + torch.linalg.inv(a).sum() + torch.det(a)
