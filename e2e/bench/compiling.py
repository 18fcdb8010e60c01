"""C sources, the same each time, whose compiler needs much memory; and what the program made of them prints. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

WORD = 2**64 - 1
STATEMENTS = 12  # of a function
FOLDER, PROGRAM = "/tmp/sources", "program"  # where the guest has them, in memory as they are; and what is made of them
MAIN = "main"
# The compiler keeps what it may not need any more until it has 72 MiB and then 70 % more, as in a guest with the memory
# of both: by itself it asks how much there is, and would do something else on each side.
FLAGS = "-O0 --param ggc-min-heapsize=73728 --param ggc-min-expand=70"
State = tuple[int, int]  # the variables a and b
Statement = tuple[str, Callable[[int, int], State]]
"""In C, and what it does; the values are cut to a word afterwards."""


def _mixes(chance: random.Random) -> Statement:
    k, m = _constant(chance), _shift(chance)
    return f"a = a * {k}UL + (b >> {m});", lambda a, b: (a * k + (b >> m), b)


def _branches(chance: random.Random) -> Statement:
    k, m, bit = _constant(chance), _shift(chance), 1 << _shift(chance)
    text = f"if (a & {bit}UL)\n\t\tb ^= a << {m};\n\telse\n\t\tb -= a * {k}UL;"
    return text, lambda a, b: (a, b ^ a << m) if a & bit else (a, b - a * k)


def _loops(chance: random.Random) -> Statement:
    k, times = _constant(chance), chance.randint(1, 4)
    text = f"for (i = 0; i < {times}; i++)\n\t\ta += (b ^ i) * {k}UL;"
    return text, lambda a, b: (a + sum((b ^ i) * k for i in range(times)), b)


def _chooses(chance: random.Random) -> Statement:
    k, m, case = _constant(chance), _shift(chance), chance.randrange(4)
    text = f"switch (b & 3) {{\n\tcase {case}:\n\t\ta ^= {k}UL;\n\t\tbreak;\n\tdefault:\n\t\tb += a >> {m};\n\t}}"
    return text, lambda a, b: (a ^ k, b) if b & 3 == case else (a, b + (a >> m))


KINDS = (_mixes, _branches, _loops, _chooses)


def _constant(chance: random.Random) -> int:
    return chance.getrandbits(63) | 1


def _shift(chance: random.Random) -> int:
    return chance.randint(1, 31)


@dataclass(frozen=True)
class Unit:
    """A source with so many functions, each of which makes a number of another."""

    number: int
    functions: int

    @property
    def name(self) -> str:
        """Its file's, without an ending."""
        return f"unit{self.number}"

    @property
    def text(self) -> str:
        """The source. What it has of others' comes last: the compiler has all of it in memory before it writes any."""
        parts = [
            f"static unsigned long f{place}(unsigned long a)\n{{\n\tunsigned long b = {place}, i = 0;\n\n\t"
            + "\n\t".join(text for text, _ in function)
            + "\n\treturn a ^ b;\n}\n"
            for place, function in enumerate(self._made())
        ]
        calls = "".join(f"\ta = f{place}(a);\n" for place in range(self.functions))
        return "\n".join([*parts, f"unsigned long {self.name}(unsigned long a)\n{{\n{calls}\treturn a;\n}}\n"])

    def of(self, number: int) -> int:
        """What its functions make of a number, each of what the one before made."""
        for place, function in enumerate(self._made()):
            a, b = number, place
            for _, does in function:
                a, b = (word & WORD for word in does(a, b))
            number = a ^ b
        return number

    def _made(self) -> Iterator[list[Statement]]:
        chance = random.Random(self.number)
        for _ in range(self.functions):
            yield [chance.choice(KINDS)(chance) for _ in range(STATEMENTS)]


def sources(units: Sequence[Unit]) -> dict[str, str]:
    """Files of a program that prints what its units make of 1, one after the other."""
    declared = "".join(f"unsigned long {unit.name}(unsigned long a);\n" for unit in units)
    calls = "".join(f"\ta = {unit.name}(a);\n" for unit in units)
    main = f'int main(void)\n{{\n\tunsigned long a = 1;\n\n{calls}\tprintf("%lu\\n", a);\n\treturn 0;\n}}\n'
    files = {unit.name: unit.text for unit in units} | {MAIN: f"int printf(const char *, ...);\n{declared}\n{main}"}
    return {f"{name}.c": text for name, text in files.items()}


def printed(units: Sequence[Unit]) -> int:
    """What the program has to print."""
    number = 1
    for unit in units:
        number = unit.of(number)
    return number


def build(folder: str = FOLDER) -> str:
    """A shell command that compiles the sources of a folder, one at a time, and links them."""
    each = f"for source in *.c; do gcc {FLAGS} -c $source || exit 1; done"
    return f"cd {folder} && {{ {each}; }} && gcc -o {PROGRAM} *.o"
