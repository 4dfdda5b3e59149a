"""`make bench`: every benchmark, one after the other, each in a process of its own."""

import subprocess
import sys

from bench.recall import DATA

ALL = ("write", "served", "projections", "freshness", "search")  # some 20 minutes on 2 cores

if __name__ == "__main__":
    wanted = [*ALL, "recall"] if DATA.exists() else ALL
    failed = [
        name
        for name in wanted
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode
    ]
    if "recall" not in wanted:
        print(f"\nrecall left out: no {DATA} (its data are not ours to ship)")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
