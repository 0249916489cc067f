"""PyTorch's test that it finds handlers of other packages, with ours installed."""

import pytorch_checkout as checkout

OutOfTreeRendezvousTest = checkout.module(
    f"{checkout.RENDEZVOUS}/out_of_tree_rendezvous_test.py"
).OutOfTreeRendezvousTest
