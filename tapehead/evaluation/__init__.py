"""How good a machine is: costs, and what becomes of them at sizes it was not trained at."""
