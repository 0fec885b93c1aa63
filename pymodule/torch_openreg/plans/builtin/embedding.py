"""The gradient of an embedding.

Sources: ATen/native/cuda/Embedding.cu (embedding_dense_backward_cuda) and
EmbeddingBackwardKernel.cu (embedding_backward_cuda_kernel).
"""

from .call import HALF, Call, Tensor, plans
from .cub import count_bytes, scan_bytes, sort_bytes, unique_bytes

FEW_INDICES = 3072  # up to here one kernel does it all
ROWS_OF_THREAD = 10
COUNT_BYTES = 8
# Few long segments are summed in another way. Derived from the planner's answers at 3,073 to
# 1,000,000 indices on GPUs with 40 and 132 multiprocessors.
SEGMENTS_OF_MULTIPROCESSOR = 4
PARTS_OF_SEGMENT = 4


@plans("embedding_dense_backward")
def embedding_backward(
    call: Call,
    grad_output: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> None:
    """Sort the indices; sum the gradients of each index in parts."""
    count, width = indices.numel, grad_output.sizes[-1]
    copies = [call.contiguous(indices), call.contiguous(grad_output)]
    if count <= FEW_INDICES and not scale_grad_by_freq:
        call.result(grad_output.dtype, (num_weights, width))
        call.free(*reversed(copies))
        return
    if count == 0:
        call.result(grad_output.dtype, (num_weights, width))
        call.free(*reversed(copies))
        return
    index, item = indices.dtype, indices.item
    kept = [call.make(index, count) for _ in range(2)]  # sorted, and where they were
    positions = call.make(index, count)
    call.free(call.take(sort_bytes(call, count, item, item, num_weights.bit_length())), positions)
    if scale_grad_by_freq:
        kept.append(call.make(index, count))
        for _ in range(2):
            call.free(call.take(count_bytes(call, count, item)))
    call.result(grad_output.dtype, (num_weights, width))
    blocks = [call.make(index, count), call.take(COUNT_BYTES)]
    keys = call.make(index, count)
    call.free(call.take(unique_bytes(call, count, item)), keys)
    segments = min(count, num_weights)
    blocks += [call.make(index, segments) for _ in range(2)]
    call.free(call.take(scan_bytes(segments, item)))
    parts = count // ROWS_OF_THREAD + segments
    blocks += [call.take(COUNT_BYTES), call.make(index, parts)]
    if (
        segments < SEGMENTS_OF_MULTIPROCESSOR * call.device.multiprocessors
        and parts > PARTS_OF_SEGMENT * segments
    ):
        blocks.append(call.make(index, parts))
        if grad_output.dtype in HALF:
            blocks.append(call.make("float32", segments, width))
    else:
        of = "float32" if grad_output.dtype in HALF else grad_output.dtype
        blocks.append(call.make(of, parts, width))
    call.free(*reversed(blocks), *reversed(kept), *reversed(copies))
