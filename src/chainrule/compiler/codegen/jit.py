"""LLVM IR to functions that can be called.

In: the text of a module. Out: a ``Library`` that owns the machine code and gives the addresses of
its functions; the code is freed with it. Between the two is object code, LLVM's or that of the same
text and the same processor from the folder of ``object_cache``.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from chainrule.compiler.codegen import object_cache

#: this variable of the environment makes code as for an older x86-64 processor, for tests
VECTOR_BITS = "CHAINRULE_VECTOR_BITS"
_PROCESSORS = {"128": "x86-64", "256": "x86-64-v3"}
#: how object code is made of a module; it is part of the key under which that is kept
LEVEL = 2
TUNING = {"loop_vectorization": False, "slp_vectorization": False, "loop_unrolling": False}
PASSES = ("sroa", "simplify_cfg", "instruction_combine")
# Loop strength reduction takes half of LLVM's time and has nothing to do: addresses are strided
# already.
OPTION = "-disable-lsr"
ENGINE = 16_000  # bytes of a library without its code, measured
_lock = threading.Lock()
_ready = False
_libraries: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()


def _binding() -> Any:
    """llvmlite, initialised for this machine on first use. ImportError where there is none."""
    global _ready
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise ImportError(
            "llvmlite is not installed, so there is no machine code, only the tape: "
            "pip install llvmlite"
        ) from error
    with _lock:
        if not _ready:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _ready = True
    return llvm


def vector_width() -> int:
    """How many doubles one register of this machine holds."""
    if (bits := os.environ.get(VECTOR_BITS)) in _PROCESSORS:
        return int(bits) // 64
    features = _binding().get_host_cpu_features()
    return 8 if features.get("avx512f") else 4 if features.get("avx2") else 2


def library(text: str) -> Library:
    """The machine code of a module, the same for equal texts as long as one of them is in use."""
    made = _libraries.get(text)
    if made is None:
        made = _libraries[text] = Library(text)
    return made


def _processor(llvm: Any) -> tuple[str, str]:
    """The name and the features of the processor to make code for: this one, or an older."""
    if (bits := os.environ.get(VECTOR_BITS)) in _PROCESSORS:
        return _PROCESSORS[bits], ""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


class Library:
    """Machine code in memory; ``is_cached``: it was not built here, but read from the cache."""

    def __init__(self, text: str) -> None:
        llvm = _binding()
        cpu, features = _processor(llvm)
        target = llvm.Target.from_default_triple()

        def target_machine() -> Any:
            return target.create_target_machine(cpu=cpu, features=features, opt=LEVEL, jit=True)

        cache, key, code = object_cache.current(), "", None
        if cache is not None:
            key = _key(llvm, target_machine().triple, cpu, features, text)
            code = cache.read(key)
        self.is_cached = code is not None
        with _lock:
            # One that has made code holds 700 kB as long as it is there, and an engine keeps its.
            made = _object_code(llvm, target_machine(), text) if code is None else code
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(made))
            self._engine.finalize_object()
        self.nbytes = ENGINE + 2 * len(made)  #: its memory: the object code, and where it was put
        if cache is not None and code is None:
            cache.write(key, made)

    def address(self, function: str) -> int:
        """The address of a function."""
        return int(self._engine.get_function_address(function))


def _object_code(llvm: Any, machine: Any, text: str) -> bytes:
    """What LLVM makes of a module: a function of all that ``_key`` is made of, and no more."""
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    for name, value in TUNING.items():
        setattr(options, name, value)
    passes = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, llvm.create_pass_builder(machine, options))
    llvm.set_option("", f"{OPTION}=true")  # global to the process, so it is restored
    try:
        return bytes(machine.emit_object(module))
    finally:
        llvm.set_option("", f"{OPTION}=false")


def _key(llvm: Any, triple: str, cpu: str, features: str, text: str) -> str:
    """The name of a module's object code: LLVM, how it is used, the processor, and the module."""
    import llvmlite

    versions = (llvmlite.__version__, llvm.llvm_version_info)
    recipe = (LEVEL, TUNING, PASSES, OPTION)
    return object_cache.key_of(repr(versions), repr(recipe), triple, cpu, features, text)
