import sys, json; sys.path.insert(0,'benchmarks')
import gpu_check as g, torch
from tapehead.kernels.ntm_scan import gpu, gpu_plan
for st in map(int, sys.argv[1:]):
    gpu_plan.SLOT_THREADS=st
    for f in (gpu._plan, gpu._kernels, gpu_plan.Plan.header, gpu_plan.Plan.products): f.cache_clear()
    print('slot threads', st, flush=True)
    e=g.gate_case(*g.CASES[1]); print('  worst error', max(e.values()), flush=True)
    for S,B in ((132,1),(1,1),(1,4096)):
        call=g.training_case(g.PRESETS["copy"],S,41,B)
        t=sorted(g.graph_times(call,20))[10]
        print('  ',S,B,round(t*1e6,1),g.kernel_times(call),flush=True)
        torch.cuda.empty_cache()
