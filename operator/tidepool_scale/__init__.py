"""How the operator's costs grow with the number of guests: `make scale`. Not part of the product.

The API server and the operator are real; nodes are objects without a kubelet, and the agents are one process that
writes what agents would: guests, their reports, and the ends of the pairings.
"""
