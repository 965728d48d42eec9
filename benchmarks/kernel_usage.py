"""Registers and spilled bytes of every kernel, format, head size and architecture, as the pinned NVRTC reports them.

    uv run --group nvrtc python benchmarks/kernel_usage.py            print what differs from the table
    uv run --group nvrtc python benchmarks/kernel_usage.py --write    write benchmarks/kernel_usage.json anew

Needs no GPU. `pytest -m nvrtc` holds the kernels to the table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TABLE = Path(__file__).with_suffix(".json")
sys.path.insert(0, str(TABLE.parent.parent))

from compute.kernels.loader import ARCHITECTURES, compile_cubin  # noqa: E402
from compute.kernels.sources import FAMILIES, defines, text  # noqa: E402


def targets() -> list[tuple[str, str, int, str]]:
    """(family, format, head size, architecture) of everything that is compiled."""
    found = []
    for family in FAMILIES.values():
        for arch in ARCHITECTURES:
            if int(arch.removeprefix("sm_")) < family.oldest[0] * 10 + family.oldest[1]:
                continue
            sizes = (64, 128) if family.is_attention else (64,)
            found += [(family.name, fmt, d, arch) for fmt in family.formats for d in sizes]
    return found


def usage(target: tuple[str, str, int, str]) -> dict[str, list[int]]:
    """Kernel name -> [registers, bytes spilled]."""
    family, fmt, d, arch = target
    built = compile_cubin(text(family, fmt), defines(fmt, d), arch)
    return {name: [u["registers"], u["spill_bytes"]] for name, u in sorted(built.usage().items())}


def key(target: tuple[str, str, int, str]) -> str:
    return "/".join(map(str, target))


def main() -> int:
    table = {key(t): usage(t) for t in targets()}
    if "--write" in sys.argv:
        rows = ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in table.items())
        TABLE.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
        print(f"{len(table)} modules written to {TABLE.name}")
        return 0
    kept = json.loads(TABLE.read_text(encoding="utf-8"))
    differ = [k for k in sorted(set(kept) | set(table)) if kept.get(k) != table.get(k)]
    for k in differ:
        print(f"{k}: table {kept.get(k)}, now {table.get(k)}")
    print(f"{len(table)} modules, {len(differ)} differ")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
