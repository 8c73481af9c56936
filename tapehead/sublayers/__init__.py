"""What the sub-layers of a Transformer are worth, which of them a draft can skip, and decoding with such a draft."""
