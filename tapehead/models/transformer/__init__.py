"""A decoder-only Transformer under the sequence contract, and the sub-layers that it can skip."""
