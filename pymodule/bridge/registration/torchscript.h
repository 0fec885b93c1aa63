// torch.cuda in TorchScript.
#pragma once

namespace openreg {

// Registers the classes and operators that TorchScript uses for torch.cuda. Call it once, in CUDA
// mode. PyTorch's CUDA build has them in libtorch_cuda, which is not loaded in CUDA mode.
void register_torchscript();

} // namespace openreg
