"""LLVM IR to functions that can be called.

In: the text of a module. Out: a ``Library`` that owns the machine code and gives the addresses of
its functions; the code is freed with it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

#: this variable of the environment makes code as for an older x86-64 processor, for tests
VECTOR_BITS = "CHAINRULE_VECTOR_BITS"
_PROCESSORS = {"128": "x86-64", "256": "x86-64-v3"}
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
    """Machine code in memory."""

    def __init__(self, text: str) -> None:
        llvm = _binding()
        with _lock:
            module = llvm.parse_assembly(text)
            module.verify()
            cpu, features = _processor(llvm)
            machine = llvm.Target.from_default_triple().create_target_machine(
                cpu=cpu, features=features, opt=2, jit=True
            )
            options = llvm.create_pipeline_tuning_options(speed_level=1)
            options.loop_vectorization = options.slp_vectorization = False
            options.loop_unrolling = False
            builder = llvm.create_pass_builder(machine, options)
            passes = llvm.create_new_module_pass_manager()
            passes.add_sroa_pass()
            passes.add_simplify_cfg_pass()
            passes.add_instruction_combine_pass()
            passes.run(module, builder)
            # Loop strength reduction takes half of LLVM's time and has nothing to do: addresses
            # are strided already. The option is global to the process, so it is restored.
            llvm.set_option("", "-disable-lsr=true")
            try:
                self._engine = llvm.create_mcjit_compiler(module, machine)
                self._engine.finalize_object()
            finally:
                llvm.set_option("", "-disable-lsr=false")

    def address(self, function: str) -> int:
        """The address of a function."""
        return int(self._engine.get_function_address(function))
