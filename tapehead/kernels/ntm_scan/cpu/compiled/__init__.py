"""What is compiled, and nothing else: an edit anywhere in this folder makes a new kernel, an edit elsewhere does not.

Legend as in the folder above. Constants may come from other modules (the key of the compiled kernel holds their
values), functions may not. An underscore marks functions of one module; the others are shared within the folder.
"""
