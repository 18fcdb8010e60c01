"""The test bed: tiny guests that boot in seconds, in pairs, with the module and a command channel into each.

Layers, each importing only those before it: `image` (what a guest boots), `channel` (commands into a guest), `booted`
(guests that have just booted, kept), `guest` (one QEMU process), `tidepool` (the module in a guest), `relay` (a wire
that misbehaves), `pair` (a borrower, a lender and the wire between), `measure` (what the module costs a guest).
"""
