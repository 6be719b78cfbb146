"""`python -m tests.bench.peers.enqueue MODULE [COUNT]`: put so many jobs into a peer's queue; without COUNT prepare it.

Not the peer's module itself: several peers name a task by its module, which would then be `__main__`.
"""

import importlib
import sys

if __name__ == "__main__":
    peer = importlib.import_module(f"tests.bench.peers.{sys.argv[1]}")
    if len(sys.argv) > 2:
        peer.enqueue(int(sys.argv[2]))
    else:
        peer.prepare()
