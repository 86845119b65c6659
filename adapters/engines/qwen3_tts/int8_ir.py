"""A small language for kernels: Python that writes LLVM IR, compiled for this machine in a fraction of a second.

Numbers are written as they are computed with: ``+ - * /`` on integers, floats and vectors of them, addresses as 64-bit
integers, variables for what a loop changes. Nothing is reordered: a float sum has the order in which it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import binding, ir

I8, I16, I32, I64, F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_POINTER = ir.PointerType()


def vector(kind: Any, lanes: int) -> Any:
    """The type of so many values of a kind."""
    return ir.VectorType(kind, lanes)


@dataclass(frozen=True, slots=True)
class Num:
    """A value of the program being written. The other operand may be a Python number: it takes this one's type."""

    code: Code
    value: Any

    @property
    def kind(self) -> Any:
        """Its LLVM type."""
        return self.value.type

    @property
    def lanes(self) -> int:
        """Values in the vector, 1 for a scalar."""
        return int(getattr(self.kind, "count", 1))

    @property
    def _float(self) -> bool:
        return bool(getattr(self.kind, "element", self.kind) == F32)

    def like(self, other: Num | float) -> Num:
        """A number as a constant of this one's type; other values as they are."""
        return other if isinstance(other, Num) else self.code.constant(self.kind, other)

    def _apply(self, name: str, other: Num | float) -> Num:
        return Num(self.code, getattr(self.code.builder, name)(self.value, self.like(other).value))

    def __add__(self, other: Num | float) -> Num:
        return self._apply("fadd" if self._float else "add", other)

    def __sub__(self, other: Num | float) -> Num:
        return self._apply("fsub" if self._float else "sub", other)

    def __mul__(self, other: Num | float) -> Num:
        return self._apply("fmul" if self._float else "mul", other)

    def __truediv__(self, other: Num | float) -> Num:
        return self._apply("fdiv", other)

    def __floordiv__(self, other: Num | int) -> Num:
        """Of integers that are not negative."""
        return self._apply("udiv", other)

    def __and__(self, other: Num | int) -> Num:
        return self._apply("and_", other)

    def __lshift__(self, other: Num | int) -> Num:
        return self._apply("shl", other)

    def below(self, other: Num | int) -> Any:
        """A condition on signed integers."""
        return self.code.builder.icmp_signed("<", self.value, self.like(other).value)

    def cast(self, name: str, kind: Any) -> Num:
        """An LLVM cast (``bitcast``, ``sitofp``, ``fptosi``, ``trunc``, ``zext``) to another type."""
        return Num(self.code, getattr(self.code.builder, name)(self.value, kind))


class Var:
    """A variable; LLVM keeps it in a register."""

    def __init__(self, code: Code, first: Num) -> None:
        self._code = code
        with code.builder.goto_entry_block():
            self._place = code.builder.alloca(first.kind)
        self._kind = first.kind
        self.set(first)

    def get(self) -> Num:
        """Its value here."""
        return Num(self._code, self._code.builder.load(self._place, typ=self._kind))

    def set(self, value: Num) -> None:
        """Its value from here on."""
        self._code.builder.store(value.value, self._place)


class Code:
    """One function under writing, all its parameters 64-bit integers. End it with ``done``."""

    def __init__(self, module: Any, name: str, parameters: Sequence[str], *, exported: bool = False) -> None:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * len(parameters)), name)
        function.attributes.add("nounwind")
        if not exported:
            function.linkage = "internal"
            function.attributes.add("noinline")
        self.module = module
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.parameters = [Num(self, argument) for argument in function.args]

    def done(self) -> None:
        """Return."""
        self.builder.ret_void()

    def constant(self, kind: Any, value: float) -> Num:
        """A number, or a vector of equal numbers."""
        lanes = getattr(kind, "count", None)
        return Num(self, ir.Constant(kind, value if lanes is None else [value] * lanes))

    def integer(self, value: int) -> Num:
        """A 64-bit integer."""
        return self.constant(I64, value)

    def variable(self, first: Num) -> Var:
        """A variable with its first value."""
        return Var(self, first)

    @contextmanager
    def loop(self, start: Num | int, stop: Num | int, step: int = 1) -> Iterator[Num]:
        """``for index in range(start, stop, step)``, for a positive step."""
        builder = self.builder
        at = self.variable(self.integer(0).like(start))
        head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(at.get().below(stop), body, after)
        builder.position_at_end(body)
        index = at.get()
        yield index
        at.set(index + step)
        builder.branch(head)
        builder.position_at_end(after)

    def load(self, address: Num, kind: Any, align: int = 4) -> Num:
        """What lies at an address."""
        place = self.builder.inttoptr(address.value, _POINTER)
        return Num(self, self.builder.load(place, align=align, typ=kind))

    def store(self, address: Num, value: Num, align: int = 4) -> None:
        """Write to an address."""
        self.builder.store(value.value, self.builder.inttoptr(address.value, _POINTER), align=align)

    def call(self, name: str, *arguments: Num | int) -> None:
        """Another function of the module."""
        values = [self.integer(0).like(one).value for one in arguments]
        self.builder.call(self.module.get_global(name), values)

    def intrinsic(self, name: str, result: Any, *arguments: Num) -> Num:
        """A function that LLVM knows, or one of the C library."""
        kind = ir.FunctionType(result, [one.kind for one in arguments])
        function = self.module.globals.get(name) or ir.Function(self.module, kind, name)
        return Num(self, self.builder.call(function, [one.value for one in arguments]))

    def of_lanes(self, name: str, *arguments: Num) -> Num:
        """An LLVM intrinsic that is named for its operands' type (``fma``, ``rint``, ``sqrt``, ``smax``, ...)."""
        first = arguments[0]
        element = getattr(first.kind, "element", first.kind)
        short = "f32" if element == F32 else str(element)
        suffix = short if first.lanes == 1 else f"v{first.lanes}{short}"
        return self.intrinsic(f"llvm.{name}.{suffix}", first.kind, *arguments)

    def spread(self, value: Num, lanes: int) -> Num:
        """A vector of one value."""
        none = ir.Constant(vector(value.kind, lanes), ir.Undefined)
        first = self.builder.insert_element(none, value.value, ir.Constant(I32, 0))
        return Num(self, self.builder.shuffle_vector(first, none, ir.Constant(vector(I32, lanes), [0] * lanes)))

    def halves(self, value: Num) -> tuple[Num, Num]:
        """The lower and the upper lanes of a vector."""
        half = value.lanes // 2
        low, high = (ir.Constant(vector(I32, half), list(range(at, at + half))) for at in (0, half))
        shuffle = self.builder.shuffle_vector
        return Num(self, shuffle(value.value, value.value, low)), Num(self, shuffle(value.value, value.value, high))

    def joined(self, low: Num, high: Num) -> Num:
        """One vector of two."""
        every = ir.Constant(vector(I32, 2 * low.lanes), list(range(2 * low.lanes)))
        return Num(self, self.builder.shuffle_vector(low.value, high.value, every))

    def fold(self, value: Num, join: str) -> Num:
        """One value of a vector's, halves joined with halves: ``add``, or an intrinsic such as ``smax``."""
        while value.lanes > 1:
            low, high = self.halves(value)
            value = low + high if join == "add" else self.of_lanes(join, low, high)
        return Num(self, self.builder.extract_element(value.value, ir.Constant(I32, 0)))

    def add_one(self, address: Num) -> None:
        """Atomically, after all that was written before."""
        place = self.builder.inttoptr(address.value, _POINTER)
        self.builder.atomic_rmw("add", place, self.integer(1).value, "acq_rel")

    def look(self, address: Num) -> Num:
        """An int64 as other threads have written it, before all that is read after."""
        place = self.builder.inttoptr(address.value, _POINTER)
        return Num(self, self.builder.load_atomic(place, "acquire", 8, typ=I64))


def declare(module: Any, name: str, parameters: int) -> None:
    """A function of another module, with so many parameters."""
    ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * parameters), name)


class Compiled:
    """A module as machine code; keeps it alive."""

    def __init__(self, module: Any) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        features = binding.get_host_cpu_features()
        machine = binding.Target.from_default_triple().create_target_machine(
            cpu=binding.get_host_cpu_name(), features=features.flatten(), opt=2, jit=True
        )
        module.triple = binding.get_default_triple()
        parsed = binding.parse_assembly(str(module))
        parsed.verify()
        tuning = binding.create_pipeline_tuning_options(speed_level=2)
        tuning.loop_vectorization = tuning.slp_vectorization = False
        passes = binding.create_pass_builder(machine, tuning)
        passes.getModulePassManager().run(parsed, passes)
        self._engine = binding.create_mcjit_compiler(parsed, machine)
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Of an exported function."""
        return int(self._engine.get_function_address(name))

    def share(self, name: str) -> None:
        """Let modules that are compiled later ``declare`` an exported function and call it."""
        binding.add_symbol(name, self.address(name))


def host_features() -> Mapping[str, bool]:
    """What this CPU can do, by LLVM's names."""
    found: Mapping[str, bool] = binding.get_host_cpu_features()
    return found
