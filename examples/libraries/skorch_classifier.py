"""skorch: a network as a scikit-learn classifier, on a device, in a search, pickled."""

import pickle

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(20, 2)

    def forward(self, inputs):
        return torch.softmax(self.linear(inputs), -1)


def fit(device):
    torch.manual_seed(0)
    network = NeuralNetClassifier(Network, max_epochs=3, lr=0.1, device=device, verbose=0)
    return network.fit(inputs, labels)


inputs = np.random.RandomState(0).randn(100, 20).astype("float32")
labels = (inputs[:, 0] > 0).astype("int64")
network = fit("cuda:1")
assert str(network.module_.linear.weight.device) == "cuda:1"
expected = fit("cpu").predict_proba(inputs)
np.testing.assert_allclose(network.predict_proba(inputs), expected, rtol=1e-4)
again = pickle.loads(pickle.dumps(network))
np.testing.assert_allclose(again.predict_proba(inputs), expected, rtol=1e-4)
GridSearchCV(network, {"lr": [0.1, 0.2]}, cv=2, scoring="accuracy", refit=False).fit(inputs, labels)
