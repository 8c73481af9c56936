"""Workers on Ray: how many there are, and what each needs. Ray itself runs in test_driver.py."""

import counted
import pytest

from tapehead.sweep import ray as ray_module
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.plan import read_jobs
from tapehead.sweep.ray import RayEngine
from tapehead.sweep.work import Assignment


class Cluster:
    """In the place of the module `ray`: a cluster with these resources."""

    def __init__(self, running, **resources):
        self.running, self.resources, self.needs = running, resources, None

    def is_initialized(self):
        return self.running

    def init(self, **options):
        self.running = True

    def shutdown(self):
        self.running = False

    def cluster_resources(self):
        return self.resources

    def remote(self, **needs):
        self.needs = needs
        return lambda function: function


@pytest.fixture
def engine(tmp_path, monkeypatch):
    def make(cluster, device):
        monkeypatch.setattr(ray_module, "_import", lambda: cluster)
        sweep = SweepFolder.create(tmp_path / "sweep", read_jobs(counted.write_file(tmp_path)))
        return RayEngine(sweep, Assignment(str(sweep.path), "driver", device=device), {})

    return make


@pytest.mark.parametrize(
    ("device", "resources", "workers"),
    [
        ("cpu", {"CPU": 16.0, "GPU": 2.0}, 16),
        (None, {"CPU": 16.0}, 16),
        (None, {}, 1),
        ("cuda", {"CPU": 16.0, "GPU": 2.0}, 2),
        ("cuda:0", {"CPU": 16.0, "GPU": 1.0}, 1),
    ],
)
def test_there_is_a_worker_for_each_place(engine, device, resources, workers):
    cluster = Cluster(False, **resources)
    assert engine(cluster, device).default_workers() == workers
    assert cluster.needs["num_gpus"] == (1 if device and "cuda" in device else 0)


@pytest.mark.parametrize("running", [False, True])
def test_a_cluster_without_gpus_is_refused(engine, running):
    cluster = Cluster(running, CPU=16.0)
    with pytest.raises(ValueError, match=r"run on cuda, but Ray's cluster has 0 GPUs: give --device cpu") as error:
        engine(cluster, "cuda")
    assert "\n" not in str(error.value)
    assert cluster.running == running  # one that it has started is shut down, and no other
