"""nothing: a recurrent network over sequences of different lengths."""

import torch

from device import DEVICE

network = torch.nn.LSTM(8, 16, batch_first=True).to(DEVICE)
batch = torch.ones(3, 7, 8, device=DEVICE)
lengths = torch.tensor([7, 5, 2])
packed = torch.nn.utils.rnn.pack_padded_sequence(batch, lengths, batch_first=True)
outputs, (hidden, cell) = network(packed)
padded, _ = torch.nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
(padded.sum() + hidden.sum() + cell.sum()).backward()
