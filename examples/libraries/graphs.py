"""PyTorch Geometric: a network with three kinds of layers, batches of graphs, sparse matrices."""

import copy

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GCNConv(16, 16)
        self.second = GATConv(16, 8, heads=2)
        self.last = SAGEConv(16, 4)

    def forward(self, graph):
        hidden = self.first(graph.x, graph.edge_index).relu()
        hidden = self.second(hidden, graph.edge_index).relu()
        return self.last(hidden, graph.edge_index)


def train(network, graph):
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        losses.append(torch.nn.functional.cross_entropy(network(graph), graph.y))
        losses[-1].backward()
        optimizer.step()
    return torch.stack(losses).detach().cpu()


torch.manual_seed(0)
edges = torch.randint(50, (2, 200))
graph = Data(x=torch.randn(50, 16), edge_index=edges, y=torch.randint(4, (50,)))
network = Network()
expected = train(copy.deepcopy(network), graph.clone())
losses = train(copy.deepcopy(network).to("cuda:1"), graph.clone().to("cuda:1"))
torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
for batch in DataLoader([graph] * 8, 4, pin_memory=True):
    batch = batch.to("cuda", non_blocking=True)
    pooled = global_mean_pool(batch.x, batch.batch)
    torch.testing.assert_close(pooled[3].cpu(), graph.x.mean(0))
