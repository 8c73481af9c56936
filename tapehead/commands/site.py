"""`tapehead site`: the viewer and the zoo as files for any web server."""

from typing import TYPE_CHECKING

from tapehead.viewer import catalogue
from tapehead.viewer.site import write_site

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.Site") -> int:
    machines = [catalogue.find(name)[0] for name in options.machines] or catalogue.zoo_machines()
    written = write_site(machines, options.out)
    size = sum(path.stat().st_size for path in written)
    print(f"{options.out}: {len(machines)} machines, {len(written)} files, {size / 1e6:.1f} MB")
    return 0
