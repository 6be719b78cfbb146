"""What processes cost while something is measured: CPU seconds and resident memory, of each with all its children."""

import threading
from collections.abc import Sequence
from types import TracebackType

import psutil

SAMPLE_S = 0.1


class Usage:
    """Use as a context manager around what is measured; read afterwards."""

    def __init__(self, processes: Sequence[psutil.Process]) -> None:
        self._processes = list(processes)
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self.cpu_s = 0.0
        self.peak_mib = 0.0
        """Of all together, at its most."""

    def __enter__(self) -> "Usage":
        self._before = self._cpu()
        self._sampler.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.cpu_s = self._cpu() - self._before
        self._stop.set()
        self._sampler.join()

    def _all(self) -> list[psutil.Process]:
        found = []
        for process in self._processes:
            try:
                found += [process, *process.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return found

    def _cpu(self) -> float:
        total = 0.0
        for process in self._all():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            resident = 0
            for process in self._all():
                try:
                    resident += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak_mib = max(self.peak_mib, resident / 2**20)
