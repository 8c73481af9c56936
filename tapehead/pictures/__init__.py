"""Pictures of a run: learning curve, answers, memory use. Importing any module in here imports matplotlib."""
