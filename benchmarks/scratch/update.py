import sys; sys.path.insert(0,'benchmarks')
import gpu_check as g, torch
from tapehead.kernels.update import gpu
from tapehead.kernels.update.contract import *
P=g.PRESETS["copy"].parameter_count
for S in (132,1):
    for avg in (0.,.999):
        r=UpdateRule(average=avg); st=UpdateState(r,torch.randn(S,P,device='cuda')); gr=torch.randn(S,P,device='cuda'); c=torch.rand(S,1,device='cuda')
        call=lambda: gpu.update(r,st,gr,c,1e-4)
        print('update',S,avg,round(sorted(g.graph_times(call,50))[25]*1e6,1),g.kernel_times(call),flush=True)
