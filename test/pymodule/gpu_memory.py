"""The table of docs/gpu-memory.md."""

import pathlib
import re

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "gpu-memory.md"
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (\d+) \| (\d+) \|", re.MULTILINE)

# By profile: MiB of a context, bytes of a workspace of cuBLAS.
DOCUMENTED = {
    profile: (int(context), int(workspace))
    for profile, context, workspace in ROW.findall(DOCUMENT.read_text())
}
