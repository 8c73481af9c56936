import sys; sys.path.insert(0,'benchmarks')
import gpu_check as g, torch
call=g.training_case(g.PRESETS["copy"],132,41,1)
for _ in range(2): call()
torch.cuda.synchronize()
